"""`python -m benchmarks.gpu_page` without a GPU: what it prints of planted numbers, and that it ends."""

from __future__ import annotations

import fcntl
import re
import sys
from pathlib import Path

import pytest

from benchmarks import gpu, gpu_page

PLANTED = {
    "ipc": {
        "all_reduce": 0.001,
        "all_gather": 0.004,
        "broadcast": 0.001,
        "send": 0.002,
        "copy": 500.0,
    },
    "chunks": {
        "all_reduce": 0.01,
        "all_gather": 0.02,
        "broadcast": 0.01,
        "send": 0.01,
        "copy": 500.0,
    },
    "torch gloo": {"all_reduce": 0.1, "all_gather": 0.05, "broadcast": 0.05, "copy": 500.0},
}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(gpu, "count_gpus", lambda: 1)
    monkeypatch.setattr(gpu, "measure", lambda way, *rest: PLANTED[way])
    monkeypatch.setattr(
        gpu_page, "ask_for_facts", lambda deadline: {"device": "GPU X", "CuPy": "14", "NCCL": "2"}
    )
    return monkeypatch


def test_without_a_gpu_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "count_gpus", lambda: 0)
    assert gpu_page.main([]) == 1
    assert capsys.readouterr().out == "there is no GPU here (no /dev/nvidia0): nothing was run\n"


def test_the_page_has_the_device_the_table_and_what_is_promised(
    planted: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--without", "tests", "--ranks", "2", "--mib", "64"]
    assert gpu_page.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("### GPU X, 20")
    assert lines[2] == "1 GPU; CuPy 14, NCCL 2."
    rows = [line for line in lines if line.startswith("| 2 ")]
    assert rows[0] == "| 2 | 64 | | nccl | needs 2 GPUs, there are 1 | | | | |"
    # 67.1 MB; an all_reduce of two ranks reads and writes each of two arrays: 268.4 MB.
    assert rows[2] == "| 2 | 64 | all_reduce | ipc | 1.000 ms | 67.1 | 500 | 54% | 100.0x |"
    assert rows[5] == "| 2 | 64 | send | ipc | 2.000 ms | 33.6 | 500 | 13% |  |"
    assert len(rows) == 2 + 4 + 4 + 3
    assert lines[-2] == (
        "- 60% of the copy bandwidth, over IPC on one GPU: 0 of 3 met (not: all_reduce, 2 ranks, 64 MiB: 54%"
        "; all_gather, 2 ranks, 64 MiB: 27%; broadcast, 2 ranks, 64 MiB: 27%)"
    )
    assert lines[-1] == (
        "- 20 times as fast as torch gloo, over IPC on one GPU: 2 of 3 met (not: all_gather, 2 ranks, 64 "
        "MiB: 12.5x)"
    )


def test_what_failed_and_what_there_was_no_time_for_is_told(
    planted: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planted.setattr(gpu, "measure", lambda *_: "OSError: no driver")
    argv = ["--without", "tests", "--ranks", "2", "--mib", "64"]
    assert gpu_page.main(argv) == 1
    assert "| 2 | 64 | | ipc | OSError: no driver | | | | |" in capsys.readouterr().out
    assert gpu_page.main([*argv, "--minutes", "0"]) == 1
    assert "| 2 | 64 | | ipc | not measured: the time was over | | | | |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reported", "code", "is_good", "shown"),
    [
        ("... \n12 passed, 2 skipped in 9.1s", 0, True, "12 passed, 2 skipped in 9.1s"),
        ("FAILED tests/gpu/x\n1 failed, 12 passed in 9.1s", 1, False, "FAILED tests/gpu/x"),
        ("2 skipped in 0.1s", 0, False, "2 skipped"),  # nothing was run
    ],
)
def test_the_tests_own_words_are_in_the_page(
    planted: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    reported: str, code: int, is_good: bool, shown: str,
) -> None:  # fmt: skip
    planted.setattr(gpu_page, "run_in_time", lambda *_: (reported.splitlines(), code))
    assert gpu_page.main(["--without", "benchmark"]) == 1 - is_good
    assert shown in capsys.readouterr().out


@pytest.mark.slow
def test_tests_that_hang_are_ended_with_all_that_they_started(tmp_path: Path) -> None:
    held = tmp_path / "held"
    program = (
        "import fcntl, os, sys, time\n"
        "held = open(sys.argv[1], 'w')\n"
        "fcntl.flock(held, fcntl.LOCK_EX)\n"
        "os.fork()\n"
        "print('begun', flush=True)\n"
        "time.sleep(600)"
    )
    lines, code = gpu_page.run_in_time([sys.executable, "-S", "-c", program, str(held)], 1.5)
    assert (code, lines[0], lines[-1]) == (1, "begun", "did not end in its time, and was killed")
    with held.open("w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)  # which comes when both are gone


@pytest.mark.slow
def test_the_commands_run_here_and_say_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are, in real processes: the tests are left out, and the facts name what there is not."""
    monkeypatch.setattr(gpu, "count_gpus", lambda: 1)
    assert gpu_page.main(["--without", "benchmark", "--minutes", "2"]) == 1
    shown = capsys.readouterr().out
    assert "### " in shown.splitlines()[0]
    assert "CuPy" in shown
    assert re.search(r"\d+ (skipped|passed)", shown)
