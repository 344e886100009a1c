"""Real ranks that fail in one way or another: what their files say, and who is found to be first."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import distdbg
from distdbg.launch.evidence import LostRankEvidence, gather
from distdbg.launch.output_streams import StdStreams
from distdbg.launch.outputs.choices import OutputChoices
from distdbg.launch.outputs.folders import make_logs_folder
from distdbg.launch.outputs.outputs import Outputs
from distdbg.launch.report import JobOutcome, exit_code, report
from distdbg.launch.root_cause import LossRole, find_root_cause
from distdbg.record.ends import RankEnd
from distdbg.record.format import Exit
from distdbg.record.reader import read_record

pytestmark = pytest.mark.ranks

BEGIN = """
import os, signal, sys
import distdbg as dist
rank = int(os.environ["RANK"])
"""
MEET = (
    BEGIN
    + """
dist.init_process_group()
dist.barrier()
"""
)


def run_job(tmp_path: Path, script: str, count: int = 3) -> list[LostRankEvidence]:
    """Run a script as ranks, wait for all to end by themselves, and gather what they left."""
    file = tmp_path / "train.py"
    file.write_text(script)
    folder = tmp_path / "run" / "attempt_0"
    folder.mkdir(parents=True)
    outputs = Outputs(
        OutputChoices(redirects=(StdStreams.ALL,) * count), make_logs_folder(tmp_path / "run")
    )
    ranks = [_start(rank, count, file, folder, outputs) for rank in range(count)]
    began = time.monotonic()
    ends: dict[int, RankEnd] = {}
    try:
        while len(ends) < count:
            assert time.monotonic() - began < 30, "ranks hang"
            for rank, process in enumerate(ranks):
                if rank not in ends and process.poll() is not None:
                    ends[rank] = _end(rank, process)
            time.sleep(0.005)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    outputs.close()
    return gather(
        ends.values(),
        folder,
        lambda rank: outputs.error_file(rank, 0),
        lambda rank: outputs.log_file(rank, 0, StdStreams.ERR),
    )


def _start(
    rank: int, count: int, file: Path, folder: Path, outputs: Outputs
) -> subprocess.Popen[bytes]:
    stdout, stderr = outputs.open(rank, rank, 0)
    assert stdout is not None
    assert stderr is not None
    environ = os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "DISTDBG_STORE": f"file://{folder}/store",
        "DISTDBG_RUN_DIR": str(folder),
        "DISTDBG_RUN": "run",
        "DISTDBG_AGENT": "0",
        "DISTDBG_ERROR_FILE": str(outputs.error_file(rank, 0)),
        "PYTHONPATH": str(Path(distdbg.__file__).parents[1]),
    }
    try:
        return subprocess.Popen(
            [sys.executable, str(file)], env=environ, stdout=stdout, stderr=stderr
        )
    finally:
        os.close(stdout)
        os.close(stderr)


def _end(rank: int, process: subprocess.Popen[bytes]) -> RankEnd:
    code = process.returncode
    return RankEnd(
        rank=rank,
        pid=process.pid,
        host="here",
        ended_ns=time.monotonic_ns(),
        wall_ns=time.time_ns(),
        cause="exited" if code >= 0 else "signal",
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
    )


def judge(evidence: Sequence[LostRankEvidence]) -> tuple[LossRole, list[int], int, str]:
    """The part and the ranks of who was first, the exit code, the report."""
    found = find_root_cause(evidence)
    assert found is not None
    outcome = JobOutcome(evidence=evidence)
    ranks = sorted(one.rank for one in found.first)
    return found.role, ranks, exit_code(outcome), report(outcome)


def test_who_raises_is_found_and_the_others_are_its_victims(tmp_path: Path) -> None:
    script = """
if rank == 1:
    raise ValueError("no data")
dist.barrier()
"""
    evidence = run_job(tmp_path, MEET + script)
    part, ranks, code, text = judge(evidence)
    assert (part, ranks, code) == (LossRole.CAUSE, [1], 1)
    first, *rest = text.splitlines()
    assert first.startswith("FAILED: rank 1 raised ValueError: no data (host here, pid ")
    assert "  ranks 0,2 failed because of it: RankLeft" in rest
    assert any("train.py" in line for line in rest)
    for one in evidence:
        if one.rank != 1:
            assert one.because_of == {1}


def test_a_process_that_ends_itself_is_told_with_the_line_and_that_of_its_main_thread(
    tmp_path: Path,
) -> None:
    script = """
import threading

def watchdog():
    os._exit(75)

def evaluate():
    thread = threading.Thread(target=watchdog, name="heartbeat")
    thread.start()
    thread.join()

if rank == 1:
    if os.fork() == 0:
        os._exit(3)  # a child of a rank says nothing
    evaluate()
dist.barrier()
"""
    part, ranks, code, text = judge(run_job(tmp_path, MEET + script))
    assert (part, ranks, code) == (LossRole.CAUSE, [1], 75)
    lines = text.splitlines()
    assert lines[0].startswith("FAILED: rank 1 exited with code 75 (host here, pid ")
    reported = "  thread 'heartbeat' called os._exit(75) at train.py:12 (watchdog); the main thread was at "
    assert lines[1].startswith(f"{reported}train.py:1")
    assert lines[1].endswith("(evaluate)")
    assert "  hint: see why train.py:12 ends the process" in lines


def test_a_program_that_ends_by_sys_exit_is_told_with_the_line(tmp_path: Path) -> None:
    script = """
def finish():
    sys.exit(3)

if rank == 1:
    try:
        sys.exit(2)
    except SystemExit:
        finish()
dist.barrier()
"""
    part, ranks, code, text = judge(run_job(tmp_path, "import sys\n" + MEET + script))
    assert (part, ranks, code) == (LossRole.CAUSE, [1], 3)
    lines = text.splitlines()
    assert lines[0].startswith("FAILED: rank 1 exited with code 3 (host here, pid ")
    [reported] = [line for line in lines if "sys.exit" in line]
    assert reported.startswith("  called sys.exit(3) at train.py:")
    assert reported.endswith("(finish)")


def test_the_error_that_a_program_handled_when_it_called_sys_exit_is_reported(
    tmp_path: Path,
) -> None:
    script = """
def read():
    raise ValueError("no data")

if rank == 1:
    try:
        read()
    except Exception:
        sys.exit(4)
dist.barrier()
"""
    part, ranks, code, text = judge(run_job(tmp_path, MEET + script))
    assert (part, ranks, code) == (LossRole.CAUSE, [1], 4)
    line = r"  called sys\.exit\(4\) at train\.py:\d+ \(<module>\) while it handled ValueError: no data at "
    assert re.search(rf"^{line}train\.py:\d+ \(read\)$", text, re.MULTILINE), text


#: As torch.multiprocessing.spawn starts a function, in a file of an installed package.
WRAPPED = """
import multiprocessing
library = {}
exec(compile('''
import sys
def wrap(fn):
    try:
        fn()
    except Exception:
        sys.exit(1)
''', "/opt/site-packages/torch/spawn.py", "exec"), library)

def work():
    dist.init_process_group()
    dist.barrier()
    if rank == 1:
        raise ValueError("no data")
    dist.barrier()

"""


@pytest.mark.parametrize("target", ['library["wrap"], args=(work,)', "work"])
def test_what_a_function_in_a_child_process_raised_is_no_return_and_no_sys_exit(
    tmp_path: Path, target: str
) -> None:
    start = f"child = multiprocessing.get_context('fork').Process(target={target})\n"
    end = "child.start()\nchild.join()\nsys.exit(child.exitcode)\n"
    evidence = run_job(tmp_path, BEGIN + WRAPPED + start + end, count=2)
    part, ranks, code, text = judge(evidence)
    assert (part, ranks, code) == (LossRole.CAUSE, [1], 1)
    assert text.startswith("FAILED: rank 1 raised ValueError: no data (host here, pid ")
    record = read_record(tmp_path / "run" / "attempt_0" / "rank00001.ddr")
    assert record.state.exit is Exit.RAISED


def test_the_message_of_a_sys_exit_is_in_the_report(tmp_path: Path) -> None:
    script = "if rank == 1:\n    sys.exit('no luck')\ndist.barrier()\n"
    part, ranks, code, text = judge(run_job(tmp_path, MEET + script))
    assert (part, ranks, code) == (LossRole.CAUSE, [1], 1)
    assert "  called sys.exit('no luck') at train.py:" in text


def test_a_rank_that_has_too_many_files_open_has_last_words(tmp_path: Path) -> None:
    script = """
import resource

if rank == 1:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    files = []
    while True:
        files.append(open(os.devnull))
dist.barrier()
"""
    part, ranks, code, text = judge(run_job(tmp_path, MEET + script))
    assert (part, ranks, code) == (LossRole.CAUSE, [1], 1)
    lines = text.splitlines()
    assert lines[0].startswith("FAILED: rank 1 raised OSError: [Errno 24] Too many open files")
    assert any("train.py" in line for line in lines)
    assert "ulimit -n" in text


@pytest.mark.slow
def test_an_error_after_the_groups_are_gone_is_written_as_well(tmp_path: Path) -> None:
    script = """
try:
    if rank == 0:
        raise ValueError("no data")
finally:
    dist.destroy_process_group()
"""
    evidence = run_job(tmp_path, MEET + script, 2)
    part, ranks, _, text = judge(evidence)
    assert (part, ranks) == (LossRole.CAUSE, [0])
    assert "rank 0 raised ValueError: no data" in text
    assert "error file: " in text


@pytest.mark.slow
def test_a_kill_is_found_with_where_the_rank_was(tmp_path: Path) -> None:
    script = """
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""
    part, ranks, code, text = judge(run_job(tmp_path, MEET + script))
    assert (part, ranks, code) == (LossRole.CAUSE, [2], 137)
    assert "rank 2 was killed by SIGKILL" in text
    assert "at its end: last op barrier" in text
    assert "ranks 0-1 failed because of it: PeerLost" in text


@pytest.mark.slow
def test_who_leaves_early_is_found_although_it_ended_well(tmp_path: Path) -> None:
    script = """
if rank != 1:
    dist.barrier()
"""
    part, ranks, code, text = judge(run_job(tmp_path, MEET + script))
    assert (part, ranks, code) == (LossRole.LEAVER, [1], 1)
    assert "rank 1 ended with exit code 0 while other ranks still needed it" in text
    assert "ranks 0,2 failed because of it: RankLeft" in text


@pytest.mark.slow
def test_a_mismatch_is_told_once_for_all(tmp_path: Path) -> None:
    script = """
import numpy as np
dist.all_reduce(np.ones(4 + rank // 2, "float32"))
"""
    part, ranks, _, text = judge(run_job(tmp_path, MEET + script))
    assert (part, ranks) == (LossRole.CAUSE, [0, 1, 2])
    assert text.startswith("MISMATCH: ")
    assert text.count("differs between ranks") == 1
    assert "train.py" in text


def test_a_program_without_groups_is_told_by_the_decorator_or_its_stderr(tmp_path: Path) -> None:
    script = f"""
fails = {str(tmp_path / "fails")!r}
@dist.record
def main():
    {{}}["batch"]

import os, time
if rank == 0:
    open(fails, "w").close()
    main()
else:
    while not os.path.exists(fails):
        time.sleep(0.01)
    time.sleep(0.5)  # so that the other one is the first
    {{}}["epoch"]
"""
    evidence = run_job(tmp_path, BEGIN + script, 2)
    _, ranks, _, text = judge(evidence)
    assert ranks == [0]
    assert "rank 0 raised KeyError: 'batch'" in text
    _, _, _, text = judge([one for one in evidence if one.rank == 1])
    assert "rank 1 exited with code 1" in text
    assert "KeyError: 'epoch'" in text


def test_torchs_own_fields_are_in_the_file(tmp_path: Path) -> None:
    run_job(tmp_path, BEGIN + "dist.record(lambda: 1 / 0)()", 1)
    path = tmp_path / "run/logs/attempt_0/0/error.json"
    message = json.loads(path.read_text())["message"]
    assert message["message"] == "ZeroDivisionError: division by zero"
    assert set(message["extraInfo"]) == {"py_callstack", "timestamp"}
