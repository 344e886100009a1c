"""A real Prometheus and three live jobs, one of each kind of trouble, shared by the tests of a file.

late      4 ranks under `distdbg run`; rank 3 is late in every step, once the ranks call different things, and
          the collector that gets their spans is not there
dies      4 ranks without a launcher; rank 1 is killed, the others lose it and stay
restarts  2 ranks under `distdbg run`, which starts them again after one was killed

In the last two nobody is late: their steps are long beside what a busy machine makes of them.

The configuration and the rules are those of dashboards/prometheus, with shorter times: what has to be so
for five minutes there has to be so for a second here.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs import RunningJob, running
from tests.support.prometheus import Prometheus, made_quick, prometheus

ROOT = Path(__file__).resolve().parents[2]
if (ROOT / "dashboards").is_dir():
    # It is in the checkout alone. Last, or the checkout's distdbg would hide an installed one.
    sys.path.append(str(ROOT))
else:
    collect_ignore_glob = ["test_live.py", "test_rules.py"]

FOLDER = ROOT / "dashboards" / "prometheus"
#: What is minutes there is this much shorter here.
QUICKER = 10
_JOB_S = 100
#: A rank that nobody ends ends itself.
BEGIN = f"""\
import os, signal, sys, time
import numpy as np
import distdbg as dist

signal.alarm({_JOB_S})
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
x = np.ones(16384, np.float32)
if rank == 0:
    with open(sys.argv[0] + ".new", "w") as file:
        file.write(os.environ["DISTDBG_RUN"])
    os.rename(sys.argv[0] + ".new", sys.argv[0] + ".run")
"""
LATE = """
half = dist.new_group([0, 1], group_desc="half")
other = np.ones(64, np.float16)
for step in range(100_000):
    if rank == 3:
        time.sleep(0.02)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    dist.broadcast(x, src=0)
    if rank < 2:
        dist.all_reduce(other, op=dist.ReduceOp.MAX, group=half)
    if rank == 0:
        dist.send(x, dst=2)
    elif rank == 2:
        dist.recv(x, src=0)
    if step == 100:
        try:
            dist.all_reduce(np.ones(4 + (rank == 2)))
        except RuntimeError as error:
            print(error, flush=True)
"""
DIES = """
for step in range(15):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    time.sleep(0.2)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
except RuntimeError as error:
    print(error, flush=True)
time.sleep(1000)
"""
RESTARTS = """
for step in range(100_000):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    time.sleep(0.2)
    if step == 10 and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
"""
#: Starts ranks as mpirun would: nobody watches them.
START = """\
import os, subprocess, sys
ranks = [
    subprocess.Popen([sys.executable, sys.argv[1]], env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "4"})
    for rank in range(4)
]
for rank in ranks:
    rank.wait()
"""


@dataclass(slots=True)
class Jobs:
    """The names of the runs, and where their metrics are."""

    runs: dict[str, str] = field(default_factory=dict)
    address: str = ""
    """Of the agent that knows all of them."""


@pytest.fixture(scope="module")
def jobs_folder() -> Iterator[Path]:
    # A short name: sockets are in it.
    folder = Path(tempfile.mkdtemp(prefix="m-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def jobs(jobs_folder: Path) -> Iterator[Jobs]:
    """All three, from before the first scrape until after the last test."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    programs = {"late": LATE, "dies": DIES, "restarts": RESTARTS}
    for name, program in programs.items():
        (jobs_folder / f"{name}.py").write_text(BEGIN + program)
    (jobs_folder / "start.py").write_text(START)
    common = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    found = Jobs()
    with ExitStack() as stack:

        def start(name: str, *argv: str, **how: Any) -> RunningJob:
            argv = (*argv, f"{jobs_folder}/{name}.py")
            environ = common | how.pop("environ", {})
            return stack.enter_context(running(argv, jobs_folder, environ, has_agent=True, **how))

        nobody = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        }
        sent = ("--metrics-port=0", "--otlp=all")
        late = start("late", "--nproc-per-node=4", *sent, environ=nobody)
        alone = {
            "DISTDBG_STORE": f"local://{jobs_folder}/store",
            "DISTDBG_TOKEN": "of these tests",
            "DISTDBG_RUN": "started-by-hand",
            "DISTDBG_METRICS": "0",
        }
        start("dies", f"{jobs_folder}/start.py", environ=alone, program=())
        start("restarts", "--nproc-per-node=2", "--max-restarts=1", "--metrics-port=0")
        for name in programs:
            found.runs[name] = _read(jobs_folder / f"{name}.py.run")
        found.address = _address(late)
        yield found


@pytest.fixture(scope="module")
def server(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """The Prometheus of the dashboards, which finds the jobs at /sd."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "rules").mkdir()
    for path in (FOLDER / "rules").glob("*.yaml"):
        rules = re.sub(r"for: \d+[smh]", "for: 1s", path.read_text()).replace("> 300", "> 3")
        (folder / "rules" / path.name).write_text(made_quick(rules, QUICKER))
    with prometheus(folder, quick_config(jobs)) as server:
        yield server


def quick_config(jobs: Jobs) -> str:
    """The one of the dashboards: its port is that of the jobs, and its times are short."""
    text = (FOLDER / "prometheus.yml").read_text()
    assert "http://127.0.0.1:9400" in text
    text = text.replace("http://127.0.0.1:9400", jobs.address)
    return re.sub(r"scrape_timeout: \d+s", "scrape_timeout: 1s", made_quick(text, QUICKER))


def _read(path: Path, timeout_s: float = 120.0) -> str:
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not come"
        time.sleep(0.05)  # the rank announces it by no other way
    return path.read_text()


def _address(job: RunningJob, timeout_s: float = 120.0) -> str:
    """Where the agent says that its metrics are."""
    assert job.process.stderr is not None
    deadline = time.monotonic() + timeout_s
    said = ""
    while time.monotonic() < deadline:
        said += job.process.stderr.readline().decode(errors="replace")
        if match := re.search(r"(http://127\.0\.0\.1:\d+)/metrics", said):
            return match[1]
    raise AssertionError(f"no address of metrics: {said}")
