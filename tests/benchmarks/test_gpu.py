"""`python -m benchmarks.gpu` without a GPU: its plan, its table of planted numbers, and what ranks are told.

Nothing here says how fast anything is. CuPy is played by NumPy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu

PLANTED = {
    "ipc": {"all_reduce": 0.001, "all_gather": 0.002, "broadcast": 0.001, "copy": 1000.0},
    "chunks": {"all_reduce": 0.010, "all_gather": 0.020, "broadcast": 0.010, "copy": 1000.0},
    "torch gloo": {"all_reduce": 0.100, "all_gather": 0.100, "broadcast": 0.050, "copy": 1000.0},
}


def test_without_a_gpu_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "count_gpus", lambda: 0)
    assert gpu.main([]) == 1
    assert capsys.readouterr().out == (
        "there is no GPU here (no /dev/nvidia0): nothing was measured\n"
    )


@pytest.mark.parametrize("argv", [["--ranks", "2,x"], ["--mib", "0"], ["--ranks", ""]])
def test_wrong_numbers_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        gpu.main(argv)
    assert refused.value.code == 2
    assert f"argument {argv[0]}: invalid" in capsys.readouterr().err


def test_the_plan_has_a_line_for_each_job(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "count_gpus", lambda: 2)
    assert gpu.main(["--plan", "--ranks", "2,4", "--mib", "64"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "2 GPUs here"
    assert lines == [
        "    2    64 nccl        ranks on GPUs [0, 1]",
        "    2    64 torch nccl  ranks on GPUs [0, 1]",
        "    2    64 ipc         ranks on GPUs [0, 1]",
        "    2    64 chunks      ranks on GPUs [0, 1]",
        "    2    64 torch gloo  ranks on GPUs [0, 1]",
        "    4    64 nccl        needs 4 GPUs, there are 2",
        "    4    64 torch nccl  needs 4 GPUs, there are 2",
        "    4    64 ipc         ranks on GPUs [0, 1, 0, 1]",
        "    4    64 chunks      ranks on GPUs [0, 1, 0, 1]",
        "    4    64 torch gloo  ranks on GPUs [0, 1, 0, 1]",
    ]


def test_the_table_has_the_rates_and_shares_of_what_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def measure(way: str, *rest: Any) -> Any:
        asked.append((way, *rest))
        return PLANTED.get(way, "No module named 'cupy'")

    monkeypatch.setattr(gpu, "count_gpus", lambda: 1)
    monkeypatch.setattr(gpu, "measure", measure)
    assert gpu.main(["--ranks", "2", "--mib", "100", "--limit", "30"]) == 0
    assert asked == [(way, 2, 100, 1, 30.0) for way in ("ipc", "chunks", "torch gloo")]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        *("ranks", "MiB", "op", "way", "median", "GB/s", "copy", "GB/s", "moved", "faster")
    ]
    assert lines[1].split("nccl")[1].strip() == "needs 2 GPUs, there are 1"
    # 100 MiB are 104.9 MB; an all_reduce of two ranks reads and writes each of two arrays: 419.4 MB.
    found = [line.split() for line in lines[3:]]
    assert found[0] == [
        "2",
        "100",
        "all_reduce",
        "ipc",
        "1.000",
        "ms",
        "104.9",
        "1000",
        "42%",
        "100.0x",
    ]
    assert found[1] == [
        "2",
        "100",
        "all_gather",
        "ipc",
        "2.000",
        "ms",
        "52.4",
        "1000",
        "42%",
        "50.0x",
    ]
    assert found[2] == [
        "2",
        "100",
        "broadcast",
        "ipc",
        "1.000",
        "ms",
        "104.9",
        "1000",
        "21%",
        "50.0x",
    ]
    assert [row[-1] for row in found[3:6]] == ["10.0x", "5.0x", "5.0x"]
    assert [row[-1] for row in found[6:]] == ["1.0x"] * 3
    assert len(lines) == 1 + 2 + 3 * 3


def test_each_rank_knows_its_place_and_its_gpu() -> None:
    ranks = gpu.environments(4, 2, 1234)
    assert [(each["RANK"], each["LOCAL_RANK"], each["DEVICE"]) for each in ranks] == [
        ("0", "0", "0"), ("1", "1", "1"), ("2", "2", "0"), ("3", "3", "1"),
    ]  # fmt: skip
    assert {(each["WORLD_SIZE"], each["MASTER_ADDR"], each["MASTER_PORT"]) for each in ranks} == {
        ("4", "127.0.0.1", "1234")
    }


def test_the_last_word_of_a_rank_that_failed_is_what_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "import os, time\nif os.environ['RANK'] == '0': time.sleep(600)\nraise OSError('no GPU')"
    began = gpu.start
    monkeypatch.setattr(
        gpu, "start", lambda _, *rest: began([sys.executable, "-S", "-c", text], *rest)
    )
    assert gpu.measure("ipc", 2, 1, 1, 60.0) == "OSError: no GPU"
    assert gpu.measure("ipc", 1, 1, 1, 0.1) == "no end within 0.1 s"


def test_an_op_takes_as_long_as_on_its_slowest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "import os, json\nrank = int(os.environ['RANK'])\n"
        "print(json.dumps({'broadcast': 1.0 + rank, 'copy': 0.0 if rank else 9.0}))"
    )
    began = gpu.start
    monkeypatch.setattr(
        gpu, "start", lambda _, *rest: began([sys.executable, "-S", "-c", text], *rest)
    )
    assert gpu.measure("ipc", 2, 1, 1, 60.0) == {"broadcast": 2.0, "copy": 9.0}


def test_the_last_words_are_the_error_and_not_its_hint() -> None:
    reported = (
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in <module>\n'
        "[rank 12] distdbg.errors.BackendMissingError: backend 'nccl' is not available here\n"
        "[rank 12]   hint: pip install 'distdbg[gpu]'\n\n"
    )
    assert gpu.last_words(reported).endswith(
        "BackendMissingError: backend 'nccl' is not available here"
    )
    assert gpu.last_words("") == gpu.last_words("  \n") == ""


def play_cupy(waits: list[int]) -> None:
    """What is used of CuPy, on the host."""

    def device(number: int) -> Any:
        return SimpleNamespace(use=lambda: None, synchronize=lambda: waits.append(number))

    # A stand-in has what the benchmark asks for, and is no module.
    sys.modules["cupy"] = SimpleNamespace(  # type: ignore[assignment]  # a stand-in
        cuda=SimpleNamespace(Device=device), ones=np.ones, empty=np.empty, copyto=np.copyto
    )


def be_a_rank(way: str) -> tuple[list[str], bool, str, int]:
    waits: list[int] = []
    play_cupy(waits)
    os.environ["DEVICE"] = "0"
    found = gpu.run_rank(way, 1)
    seconds = [
        value for name, value in found.items() if name != "copy" or os.environ["RANK"] == "0"
    ]
    return sorted(found), min(seconds) > 0, os.environ["DISTDBG_GPU_IPC"], len(waits)


@pytest.mark.ranks
@pytest.mark.parametrize(("way", "ipc"), [("ipc", "on"), ("chunks", "off")])
def test_a_rank_measures_each_op_between_idle_devices(
    ranks: Callable[..., list[Any]], way: str, ipc: str
) -> None:
    for rank, reported in enumerate(ranks(be_a_rank, 2, way=way)):
        names, are_positive, setting, waits = reported
        assert names == ["all_gather", "all_reduce", "all_to_all", "broadcast", "copy", "send"]
        assert are_positive
        assert setting == ipc
        # Before and after each of an op; the copy, on one rank alone, waits where ranks would meet, too.
        assert waits == (gpu.ROUNDS + 2) * (5 * 2 + (3 if rank == 0 else 0))


def test_the_median_leaves_the_first_rounds_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lasts = iter([100.0, 100.0, 7, 1, 6, 2, 5, 3, 4])
    now = [0.0]

    def op() -> None:
        now[0] += next(lasts)

    monkeypatch.setattr(gpu.time, "perf_counter", lambda: now[0])
    assert gpu.seconds_of(op, lambda: None, lambda: None) == 4
