"""Makes the pictures of the dashboards: of a job that goes well, gets a straggler, and hangs.

python docs/dashboard_pictures.py [FOLDER]     FOLDER is docs/how-to when it is not given

Needs Prometheus (apt-get install prometheus) and takes two minutes: eight ranks are scraped once a second,
spans are sent to a server here that takes them and forgets them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dashboards.draw.__main__ import draw  # noqa: E402
from dashboards.draw.fill import Shown  # noqa: E402
from tests.support.collector import forgetting_collector  # noqa: E402
from tests.support.prometheus import made_quick, prometheus  # noqa: E402

FOLDER = ROOT / "dashboards" / "prometheus"
#: Seconds from the beginning: rank 5 gets slow, rank 6 does not come any more, the end.
LATE_S, HANG_S, END_S = 35, 85, 103
#: Whose picture is of the hang; the others are of the time before.
OF_THE_HANG = ("overview", "ranks")
#: What is minutes in the rules is this much shorter.
QUICKER = 5
PROGRAM = f"""\
import random
import signal
import time

import numpy as np

import distdbg as dist

signal.alarm({END_S + 60})
dist.init_process_group()
rank = dist.get_rank()
# Tensor parallel in pairs, data parallel between them.
for first in range(0, 8, 2):
    pair = dist.new_group([first, first + 1], group_desc="tp")
    tp = pair if rank in (first, first + 1) else globals().get("tp")
for side in range(2):
    ranks = dist.new_group(range(side, 8, 2), group_desc="dp")
    dp = ranks if rank % 2 == side else globals().get("dp")
gradients = np.ones(1 << 18, np.float32)
shard = np.ones(1 << 16, np.float32)
activations = np.ones(1 << 14, np.float16)
begin = time.monotonic()


def compute(seconds):
    seconds *= random.uniform(0.8, 1.2)
    if rank == 5 and time.monotonic() - begin > {LATE_S}:
        seconds += 0.05
    time.sleep(seconds)


for step in range(10**6):
    for _ in range(4):
        compute(0.01)
        dist.all_reduce(activations, op=dist.ReduceOp.MAX, group=tp)
    dist.all_gather_into_tensor(np.empty(4 << 16, np.float32), shard, group=dp)
    compute(0.03)
    dist.all_reduce(gradients, op=dist.ReduceOp.MAX, group=dp)
    dist.broadcast(activations, src=0)
    if step % 20 == 0:
        dist.barrier()
    if rank in (0, 7):
        if rank == 0:
            dist.send(activations, dst=7)
        else:
            dist.recv(activations, src=0)
    now = np.array([time.monotonic() - begin])
    dist.all_reduce(now, op=dist.ReduceOp.MAX)
    if now[0] > {HANG_S} and rank == 6:
        time.sleep(1000)
"""


@contextmanager
def job(folder: Path, endpoint: str) -> Iterator[str]:
    """Where its metrics are."""
    (folder / "train.py").write_text(PROGRAM)
    environ = os.environ | {
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder),
        "DISTDBG_AGENT": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    flags = ["--nproc-per-node=8", "--metrics-port=0", "--otlp=all", "--on-deadlock=report"]
    with (folder / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "distdbg", "run", *flags, str(folder / "train.py")],
            env=environ,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if match := re.search(r"(http://[\d.:]+)/metrics", (folder / "said.txt").read_text()):
                break
            time.sleep(0.1)
        else:
            raise SystemExit((folder / "said.txt").read_text())
        yield match[1]
    finally:
        process.terminate()
        process.wait(30)


def configure(folder: Path, address: str) -> str:
    """The configuration of the dashboards for this job, with short times."""
    shutil.copytree(FOLDER / "rules", folder / "rules")
    for path in (folder / "rules").glob("*.yaml"):
        path.write_text(made_quick(path.read_text(), QUICKER))
    text = made_quick((FOLDER / "prometheus.yml").read_text(), QUICKER)
    text = text.replace("http://127.0.0.1:9400", address)
    return re.sub(r"scrape_timeout: \d+s", "scrape_timeout: 1s", text)


def main(target: str = str(ROOT / "docs" / "how-to")) -> None:
    pictures = Path(target).resolve()
    with tempfile.TemporaryDirectory(prefix="p-") as name, forgetting_collector() as endpoint:
        folder = Path(name)
        with job(folder, endpoint) as address:
            begin_s = time.time()
            config = configure(folder, address)
            with prometheus(folder, config, ["--enable-feature=exemplar-storage"]) as server:
                time.sleep(END_S)  # the story takes as long as it takes
                for is_hang, end_s in ((False, HANG_S), (True, END_S)):
                    shown = Shown(
                        begin_s=begin_s + 5, end_s=begin_s + end_s, scrape_s=1.0, most_points=60
                    )
                    drawn = folder / f"drawn-{end_s}"
                    drawn.mkdir()
                    for path in draw(server, shown, {}, drawn):
                        if any(it in path.name for it in OF_THE_HANG) == is_hang:
                            shutil.copy(path, pictures / path.name)
                            print(f"wrote {pictures / path.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
