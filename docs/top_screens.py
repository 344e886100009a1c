"""Makes the pictures of the dashboard: of each view, from the records of a run that has hung.

python docs/top_screens.py [RUN] [FOLDER]     FOLDER is docs/how-to when it is not given

Without RUN a small job is started that hangs and is ended; its records are what the pictures show.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distdbg.cli.replayed_run import open_replay
from distdbg.tui.app import TopApp
from distdbg.tui.once import draw_once
from distdbg.tui.views import VIEWS

HERE = Path(__file__).parent
#: What a replay has nothing of: stacks were not taken, and nobody can stop there any more.
LIVE_ONLY = ("stacks", "breakpoints")
SIZE = (100, 26)
#: At which part of the run a view is looked at; the others at its end.
MOMENTS = {"ranks": 0.6, "groups": 0.6, "waits": 0.6, "log": 0.6}
PROGRAM = """\
import time

import numpy as np

import distdbg as dist


def load(step):
    time.sleep(0.02 * (1 + dist.get_rank()))
    if step == 12 and dist.get_rank() == 2:
        time.sleep(60)
    return np.ones(4096, np.float32)


dist.init_process_group()
half = dist.new_group([0, 1])
for step in range(20):
    gradient = load(step)
    dist.all_reduce(gradient)
    if dist.get_rank() < 2:
        dist.all_reduce(gradient, group=half)
    if step % 4 == 0:
        print("step", step, flush=True)
"""


def distdbg(*words: str) -> list[str]:
    return [sys.executable, "-m", "distdbg", *words]


def until_it_hangs() -> None:
    """Wait until a rank waits for others, and a moment more: a verdict is there then."""
    for _ in range(100):
        shown = subprocess.run(distdbg("ps", "--json"), capture_output=True, text=True, check=False)
        runs = json.loads(shown.stdout or '{"runs": []}')["runs"]
        if any(row["state"] == "waiting" for run in runs for row in run["ranks"]):
            time.sleep(3.0)
            return
        time.sleep(0.2)
    sys.exit("the job does not hang")


def record(folder: Path, pictures: Path) -> Path:
    """The folder of a run with a rank that does not come; what only a living job shows is drawn meanwhile."""
    program = folder / "train.py"
    program.write_text(PROGRAM)
    run = folder / "20261122-101500-5e1f0a"
    environ = {**os.environ, "DISTDBG_TIMEOUT_S": "40", "DISTDBG_RUN_DIR": str(run)}
    command = distdbg("run", "--nproc-per-node=4", "--tee=3", "--debuggable", str(program))
    job = subprocess.Popen(
        command, env=environ, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until_it_hangs()
        subprocess.run(distdbg("break", "rank=3,kind=broadcast"), check=True)
        subprocess.run(distdbg("break", "on=nan"), check=True)
        for title in LIVE_ONLY:
            target = pictures / f"top-{title}.svg"
            size = f"{SIZE[0]}x{SIZE[1]}"
            subprocess.run(
                distdbg(
                    "top",
                    "--once",
                    "--view",
                    title,
                    "--size",
                    size,
                    "--svg",
                    str(target),
                    "--force",
                ),
                check=True,
            )
    finally:
        job.wait(60)
    return run


def main(run: str | None = None, folder: str | None = None) -> None:
    pictures = Path(folder or HERE / "how-to").resolve()
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(run) if run else record(Path(temporary), pictures)
        for view in VIEWS:
            if view.title in LIVE_ONLY:
                continue
            feed = open_replay(path, attempt=None)
            begin, end = feed.span() or (0.0, 0.0)
            feed.seek(begin + (end - begin) * MOMENTS.get(view.title, 1.0))
            try:
                app = TopApp(feed, view=view.title, environ={})
                picture = draw_once(app, size=SIZE, picture=True).svg
            finally:
                feed.close()
            target = pictures / f"top-{view.title}.svg"
            target.write_text(picture, encoding="utf-8")
            print(f"wrote {target}")


if __name__ == "__main__":
    main(*sys.argv[1:])
