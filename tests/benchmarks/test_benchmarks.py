"""What is measured, how it is judged, and that no process outlives a measurement."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare as comparing
from benchmarks.buffers import make_buffers
from benchmarks.cases import KINDS, Case, format_seconds, format_size, make_cases, parse_size
from benchmarks.launch import Outcome, run_commands
from benchmarks.machine import Usage
from benchmarks.measure import Limits, measure
from benchmarks.peers import Peer
from benchmarks.planted import measure as measure_planted
from benchmarks.scale import format_growth
from benchmarks.table import Row, count_targets, format_table, judge


@pytest.mark.parametrize(
    ("text", "nbytes"), [("8", 8), ("8 B", 8), ("4KiB", 4096), ("64k", 65536), ("1 MiB", 1 << 20)]
)
def test_sizes_are_read_in_the_usual_spellings(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes
    assert parse_size(format_size(nbytes)) == nbytes


@pytest.mark.parametrize("text", ["", "0", "-8", "x", "8 X", "KiB", "1.5M"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.234e-6, "1.23 us"), (45.67e-6, "45.7 us"), (9.996e-6, "10.0 us"), (0.01234, "12.3 ms")],
)
def test_times_have_three_digits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_barrier_is_measured_once_and_an_unknown_kind_is_named() -> None:
    assert make_cases(("barrier", "all_reduce"), (8, 64)) == [
        Case("barrier", 0),
        Case("all_reduce", 8),
        Case("all_reduce", 64),
    ]
    with pytest.raises(ValueError, match="'allreduce'"):
        make_cases(("allreduce",), (8,))


def test_a_size_is_the_whole_buffer_with_at_least_one_element_per_rank() -> None:
    assert Case("all_reduce", 1024).count(4) == 256
    assert Case("all_gather", 1024).count(4) == 256
    assert Case("all_to_all", 8).count(4) == 4
    assert Case("reduce_scatter", 100).count(3) == 24


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "barrier"])
def test_buffers_refuse_a_result_that_was_never_computed(kind: str) -> None:
    buffers = make_buffers(kind, 8, 2)
    buffers.fill_with_pattern(1, 2)
    with pytest.raises(RuntimeError, match=f"{kind} of .* on rank 1"):
        buffers.check(1, 2)


class Noting:
    """Implements Library: one rank, whose ops note what they find in the array they send."""

    rank, world_size = 0, 1

    def __init__(self) -> None:
        self.found: list[float] = []

    def bind(self, kind: str, source: Any, target: Any) -> Callable[[], object]:
        def op() -> None:
            self.found.append(float(source[0]))
            target[:] = source
            source[:] = 7 if len(self.found) > 1 else source

        return op

    def barrier(self) -> None:
        pass

    def maxima(self, values: list[float]) -> list[float]:
        return values

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("rewrites", "found"), [(False, 7.0), (True, 0.0)])
def test_what_is_sent_is_written_before_each_op_where_that_is_measured(
    rewrites: bool, found: float
) -> None:
    noting = Noting()
    limits = Limits(warmup_s=1e-5, block_s=1e-5, case_s=1e-4, rewrites=rewrites)
    times = measure(noting, Case("all_gather", 64), limits)
    assert len(times) >= limits.min_blocks
    assert min(times) >= 0
    assert set(noting.found[2:]) == {found}  # the first is the check of the result


@pytest.mark.parametrize("kind", ["broadcast", "all_reduce"])
def test_who_only_receives_writes_nothing(kind: str) -> None:
    buffers = make_buffers(kind, 8, 2)
    buffers.fill_with_pattern(1, 2)
    buffers.writer(1)()
    assert (buffers.source == 0).all() == (kind != "broadcast")


def test_the_targets_of_a_row_follow_from_its_case() -> None:
    times = {"distdbg": 2.0, "gloo": 50.0, "openmpi": 1.5, "mpich": 3.0}
    assert judge(Case("all_reduce", 8), 2, times) == [
        ("at most 2x openmpi", True),
        ("at most 1/30 of gloo", False),
    ]
    assert judge(Case("all_reduce", 8), 4, times) == [("at most 2x openmpi", True)]
    assert judge(Case("broadcast", 4096), 2, times) == []
    assert judge(Case("broadcast", 65536), 2, times) == [("faster than gloo/openmpi/mpich", False)]
    assert judge(Case("barrier", 0), 2, {**times, "openmpi": 0.9}) == [
        ("at most 2x openmpi", False)
    ]
    slower = {**times, "openmpi": times["distdbg"] / 2.5}
    assert judge(Case("broadcast", 8), 4, slower) == [("at most 3x openmpi", True)]
    assert judge(Case("broadcast", 8), 2, slower) == [("at most 2x openmpi", False)]
    assert judge(Case("all_gather", 8), 4, slower) == [("at most 2x openmpi", False)]


def test_without_our_own_time_there_is_no_target() -> None:
    assert judge(Case("all_reduce", 65536), 2, {"gloo": 1.0}) == []


def test_a_library_without_numbers_is_a_dash_and_no_crash() -> None:
    row = Row(Case("all_reduce", 65536), 2, {"distdbg": [1e-6, 3e-6, 2e-6], "gloo": [4e-6]})
    [_, _, line] = format_table([row], ["distdbg", "gloo", "mpich"]).splitlines()
    assert line.split("  ")[-1] == "met: faster than gloo"
    assert "2.00 us" in line
    assert "2.00x" in line
    assert " - " in line
    assert count_targets([row]) == (1, 1)


def test_growth_is_compared_with_predicted_growth() -> None:
    case = Case("barrier", 0)
    text = format_growth({(2, case): 1e-6, (4, case): 6e-6}, {(2, case): 1e-6, (4, case): 3e-6})
    assert text.splitlines()[-1].split()[-1] == "2.00"


class Alone:
    """A library of one rank, that counts its calls."""

    rank, world_size = 0, 1

    def __init__(self) -> None:
        self.calls = 0

    def bind(self, kind: str, source: object, target: object) -> object:
        def op() -> None:
            self.calls += 1

        return op

    def barrier(self) -> None:
        pass

    def maxima(self, values: list[float]) -> list[float]:
        return values

    def close(self) -> None:
        pass


def test_measure_gives_one_time_per_block_within_its_limits() -> None:
    library = Alone()
    limits = Limits(warmup_s=0.001, block_s=0.001, case_s=0.005, min_blocks=3, max_blocks=4)
    times = measure(library, Case("barrier", 0), limits)  # type: ignore[arg-type] # counts only
    assert 3 <= len(times) <= 4
    assert all(time > 0 for time in times)
    assert library.calls > len(times)


def test_the_first_command_that_fails_ends_the_others(tmp_path: Path) -> None:
    sleeper = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()));"
    commands = [
        ([sys.executable, "-c", sleeper + "time.sleep(60)"], dict(os.environ)),
        ([sys.executable, "-c", "raise SystemError('no')"], dict(os.environ)),
    ]
    error = run_commands(commands, tmp_path / "output", 30.0)
    assert error == "exit code 1: SystemError: no"
    if (tmp_path / "pid").exists():
        pid = int((tmp_path / "pid").read_text() or 0)
        assert not pid or not Path(f"/proc/{pid}").exists()


def test_commands_that_do_not_end_are_ended_at_the_limit(tmp_path: Path) -> None:
    # It has to be ended by the code under test, long before.
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    error = run_commands([(command, dict(os.environ))], tmp_path / "output", 0.2)
    assert error is not None
    assert "not done after" in error


@pytest.mark.parametrize("fault", ["healthy", "straggler", "recording lost"])
def test_a_planted_fault_is_measured_with_whether_it_was_found(fault: str) -> None:
    found = measure_planted(16, 400, fault)

    assert found["is_found"]
    assert found["took_s"] > 0
    assert found["peak_nbytes"] > 0


def test_what_others_use_is_what_is_left_of_all() -> None:
    before = Usage(at_s=100.0, everybody_s=50.0, own_s=20.0)
    assert Usage(at_s=110.0, everybody_s=65.0, own_s=25.0).others_since(before) == 1.0
    # Clocks with ticks: own seconds may be ahead.
    assert Usage(at_s=110.0, everybody_s=54.9, own_s=25.0).others_since(before) == 0.0


def test_of_a_round_beside_others_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([0.0, 15.0, 20.0, 21.0])  # the cores of everybody before and after each round
    times = iter([10.0, 20.0, 30.0, 40.0])
    monkeypatch.setattr(comparing, "read_usage", lambda: Usage(next(times), next(used), 0.0))
    monkeypatch.setattr(
        comparing,
        "run_ranks",
        lambda *_, **__: Outcome(
            [{"kind": "barrier", "nbytes": 0, "times_s": [1e-6], "cpus": [0, 1]}], None
        ),
    )
    result = comparing.compare(
        [Peer("distdbg")],
        [Case("barrier", 0)],
        [2],
        Limits(),
        rounds=2,
        cores=2,
        most_others=0.5,
    )
    assert result.others == {"distdbg, 2 ranks": [1.5, 0.1]}
    assert [row.rounds for row in result.rows] == [{"distdbg": [1e-6]}]
