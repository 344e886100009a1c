"""The launcher and spawn: what a rank finds, and what happens when one fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg import multiprocessing as mp
from tests.parity.promise import promise

pytestmark = pytest.mark.ranks

SCRIPT = """
import json, os, sys
import numpy as np
import distdbg as dist

dist.init_process_group()
x = np.ones(1)
dist.all_reduce(x)
found = {
    "total": x[0],
    "rank": dist.get_rank(),
    "is_launched": dist.is_torchelastic_launched(),
    "local_rank": dist.get_node_local_rank(),
    "argv": sys.argv[1:],
    "environ": {name: os.environ.get(name) for name in (
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    )},
}
print(json.dumps(found) + "\\n", end="", flush=True)
dist.destroy_process_group()
"""


def launch(*argv: str) -> subprocess.CompletedProcess[str]:
    """What `python -m distdbg.run` did."""
    command = [sys.executable, "-m", "distdbg.run", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the two ranks of a job saw, by rank."""
    path = tmp_path_factory.mktemp("job") / "script.py"
    path.write_text(SCRIPT)
    done = launch("--standalone", "--nproc-per-node=2", str(path), "--lr", "0.1")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(lines, key=lambda line: int(line["rank"]))


@pytest.mark.slow
@promise("The launcher starts `--nproc-per-node` processes, which `init_process_group` joins")
def test_the_launcher_starts_ranks(found: list[dict[str, Any]]) -> None:
    assert [line["rank"] for line in found] == [0, 1]
    assert [line["total"] for line in found] == [2.0, 2.0]


@pytest.mark.slow
@promise("Each process finds `RANK`, `WORLD_SIZE`, `LOCAL_RANK` and `LOCAL_WORLD_SIZE`")
def test_the_place_of_a_rank(found: list[dict[str, Any]]) -> None:
    for rank, line in enumerate(found):
        environ = line["environ"]
        assert (environ["RANK"], environ["WORLD_SIZE"]) == (str(rank), "2")
        assert (environ["LOCAL_RANK"], environ["LOCAL_WORLD_SIZE"]) == (str(rank), "2")
        assert line["local_rank"] == rank


@pytest.mark.slow
@promise("Each process finds `MASTER_ADDR` and `MASTER_PORT`, the same on all")
def test_the_address_of_rank_0(found: list[dict[str, Any]]) -> None:
    places = {(line["environ"]["MASTER_ADDR"], line["environ"]["MASTER_PORT"]) for line in found}
    ((host, port),) = places
    assert host
    assert int(port) > 0


@pytest.mark.slow
@promise("Each process finds how often the job was restarted, and how often it may be")
def test_the_restarts(found: list[dict[str, Any]]) -> None:
    for line in found:
        assert line["environ"]["TORCHELASTIC_RESTART_COUNT"] == "0"
        assert line["environ"]["TORCHELASTIC_MAX_RESTARTS"] == "0"
        assert line["is_launched"] is True


@pytest.mark.slow
@promise("What stands behind the script are its arguments")
def test_the_arguments_of_the_script(found: list[dict[str, Any]]) -> None:
    assert [line["argv"] for line in found] == [["--lr", "0.1"]] * 2


@pytest.mark.slow
@promise("When a process fails the launcher ends the others and fails as well")
def test_a_failure_under_the_launcher(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "import os, signal, sys\nsys.exit(3) if os.environ['RANK'] == '1' else signal.pause()\n"
    )
    done = launch("--nproc-per-node=2", str(path))
    assert done.returncode != 0
    assert "rank 1" in done.stderr


def write_sum(index: int, folder: str, value: int) -> None:
    dist.init_process_group("gloo")
    x = np.array([value])
    dist.all_reduce(x)
    Path(folder, str(index)).write_text(str(x[0]))
    dist.destroy_process_group()


def fail(index: int, how: str) -> None:
    if index == 1:
        if how == "raises":
            raise ValueError("one is unhappy")
        if how == "exits":
            sys.exit(3)
        os.kill(os.getpid(), 9)


@pytest.mark.slow
@promise("`spawn` calls `fn(i, *args)` in `nprocs` processes, and returns when all have ended")
def test_spawn(tmp_path: Path) -> None:
    assert dist.spawn(write_sum, (str(tmp_path), 21), nprocs=2) is None
    assert [(tmp_path / str(index)).read_text() for index in range(2)] == ["42", "42"]


@pytest.mark.slow
@promise("`spawn(join=False)` returns a context; its `join` returns whether all have ended")
def test_spawn_without_joining(tmp_path: Path) -> None:
    context = dist.spawn(write_sum, (str(tmp_path), 1), nprocs=1, join=False)
    assert context is not None
    assert len(context.processes) == len(context.pids()) == 1
    while not context.join(timeout=1):
        pass
    assert (tmp_path / "0").read_text() == "1"


@pytest.mark.slow
@promise("An exception in a process is raised in the parent, with its traceback")
def test_spawn_raises() -> None:
    with pytest.raises(mp.ProcessRaisedException, match="one is unhappy") as caught:
        dist.spawn(fail, ("raises",), nprocs=2)
    assert "Traceback" in str(caught.value)
    assert caught.value.error_index == 1


@pytest.mark.slow
@promise("A process that exits or is killed raises `ProcessExitedException` with code or signal")
def test_spawn_exits() -> None:
    with pytest.raises(mp.ProcessExitedException, match="3") as caught:
        dist.spawn(fail, ("exits",), nprocs=2)
    assert (caught.value.exit_code, caught.value.signal_name) == (3, None)
    with pytest.raises(mp.ProcessExitedException) as caught:
        dist.spawn(fail, ("is killed",), nprocs=2)
    assert caught.value.signal_name == "SIGKILL"


@promise("`fn` is pickled: a function inside another one is refused")
def test_spawn_of_a_local_function() -> None:
    with pytest.raises(ValueError, match="sent to a new process"):
        dist.spawn(lambda index: None, nprocs=1)


@promise("`start_method` is `spawn`, `fork` or `forkserver`")
def test_start_methods() -> None:
    with pytest.raises(ValueError, match="start_method"):
        mp.start_processes(fail, ("",), start_method="clone")
