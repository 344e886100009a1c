"""What the record and the check cost: who is paired with whom, how it is judged, how it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import Case
from benchmarks.overhead import measure
from benchmarks.overhead.contests import (
    DETAIL,
    GLOO_OFF,
    INFO,
    OFF,
    OURS,
    SMALL,
    UNWRAPPED,
    Contest,
    all_contests,
)
from benchmarks.overhead.judge import Answers, Target, answers, difference, judge, spread
from benchmarks.overhead.measure import Effort, Samples, run_contest
from benchmarks.overhead.rank_processes import RankProcesses, RankProcessesError
from benchmarks.overhead.report import format_report, format_time, price_rows

LARGE = Case("all_reduce", 64 << 10)


def test_levels_share_processes_and_the_bypass_has_its_own() -> None:
    assert OFF.processes == INFO.processes == DETAIL.processes
    assert UNWRAPPED.processes != OFF.processes
    assert len({subject.processes for c in all_contests() for subject in c.subjects}) == 8


def test_messages_need_a_partner() -> None:
    calls = [contest for contest in all_contests() if contest.name == "calls"]
    assert {c.world_size: any(case.kind == "send_recv" for case in c.cases) for c in calls} == {
        1: False,
        2: True,
        4: True,
    }


@pytest.mark.parametrize(
    ("low", "middle", "verdict"), [(1, 2, "met"), (4, 5, "MISSED"), (1, 5, "unclear")]
)
def test_a_target_is_met_or_missed_when_both_answers_say_so(
    low: float, middle: float, verdict: str
) -> None:
    assert Target("x", 3, "s", Answers(low, middle)).verdict == verdict


def test_a_drift_that_hits_neighbours_alike_leaves_the_difference_alone() -> None:
    base = [1.0, 2.0, 3.0, 4.0, 50.0]
    found = difference([time + 0.25 for time in base], base)
    assert found.low == pytest.approx(0.25)
    assert found.middle == pytest.approx(0.25)
    # One burst that was disturbed moves neither answer.
    assert difference([1.25, 2.25, 3.25, 4.25, 900.0], base).middle == pytest.approx(0.25)


def test_lists_that_are_no_pairs_are_not_subtracted() -> None:
    with pytest.raises(ValueError, match="zip"):
        difference([1.0], [1.0, 2.0])


def test_a_single_burst_is_its_own_percentile() -> None:
    assert answers([2.0]) == Answers(2.0, 2.0)
    assert spread([2.0]) == 1.0


def _samples(world_size: int, times: dict[tuple[Case, str], list[float]]) -> Samples:
    return Samples(Contest("calls", world_size, OURS, (SMALL, LARGE)), times)


def test_alone_the_record_is_judged_and_together_the_check() -> None:
    times = {
        (case, name): [seconds] * 4
        for case in (SMALL, LARGE)
        for name, seconds in (("unwrapped", 10e-6), ("OFF", 10.2e-6), ("DETAIL", 10.5e-6))
    }
    [record] = judge(_samples(1, times))
    assert (record.limit, record.verdict) == (300e-9, "met")
    assert record.found.low == pytest.approx(200e-9)
    small, large = judge(_samples(2, times))
    assert (small.limit, small.verdict) == (1.5e-6, "met")
    assert (large.limit, large.verdict) == (0.02, "MISSED")
    assert large.found.middle == pytest.approx(0.3 / 10.2)


def test_nothing_is_judged_without_its_measurement() -> None:
    assert judge(_samples(2, {(SMALL, "OFF"): [1.0]})) == []


@pytest.mark.parametrize(
    ("seconds", "signed", "text"),
    [
        (204e-9, False, "204 ns"),
        (1.464e-6, False, "1.46 us"),
        (-15.64e-6, True, "-15.6 us"),
        (0.0531, True, "+53.1 ms"),
        (0.0, True, "+0 ns"),
        (2.0, False, "2.00 s"),
    ],
)
def test_times_go_down_to_nanoseconds(seconds: float, signed: bool, text: str) -> None:
    assert format_time(seconds, signed=signed) == text


def test_the_report_has_a_dash_for_what_is_missing_and_names_gaps() -> None:
    times = {(SMALL, "unwrapped"): [1e-6] * 3, (SMALL, "OFF"): [1.5e-6] * 3}
    times[SMALL, "DETAIL"] = [1.5e-6] * 3
    text = format_report([_samples(1, times)], {"gloo": "torch is not installed"})
    assert "| record of an all_reduce, 8 B | 300 ns | +500 ns / +500 ns | MISSED |" in text
    assert "0 of 1 met." in text
    [row] = [line for line in text.splitlines() if line.startswith("| all_reduce, 64 KiB")]
    assert row == "| all_reduce, 64 KiB | - | - | - | - | - | - | - |"
    assert "Not measured: gloo: torch is not installed." in text


def test_every_contest_beside_the_calls_has_prices() -> None:
    for contest in all_contests():
        times = {(c, s.name): [1e-6, 2e-6] for c in contest.cases for s in contest.subjects}
        rows = price_rows(Samples(contest, times))
        assert bool(rows) == (contest.name not in ("calls", "options")), contest.name


# ---------------------------------------------------------------------------- turns and processes


class FakeRankProcesses:
    """Answers at once, and writes down who was asked."""

    asked: list[tuple[str, int]]

    def __init__(self, library: str, env: object, world_size: int) -> None:
        self.library = library

    def ask(self, order: dict[str, Any]) -> list[float]:
        self.asked.append((order["level"] or self.library, order["iterations"]))
        return [1e-3] * order["bursts"]

    def __enter__(self) -> FakeRankProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_subjects_take_turns_and_slow_peers_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeRankProcesses.asked = []
    monkeypatch.setattr(measure, "RankProcesses", FakeRankProcesses)
    contest = Contest("calls", 2, (OFF, DETAIL, GLOO_OFF), (SMALL,))
    effort = Effort(rounds=1, turns=3, bursts=2, burst_s=0.002, peer_every=2)
    samples, reason = run_contest(contest, effort, lambda _: None)
    assert reason is None
    turns = [name for name, _ in FakeRankProcesses.asked if name != "gloo"][-6:]
    assert turns == ["OFF", "DETAIL"] * 3
    assert len(samples.times_s[SMALL, "OFF"]) == len(samples.times_s[SMALL, "DETAIL"]) == 6
    assert len(samples.times_s[SMALL, "gloo OFF"]) == 4
    assert {iterations for _, iterations in FakeRankProcesses.asked[-2:]} == {2}


def test_a_real_rank_measures_switches_levels_and_leaves() -> None:
    order = {"kind": "async all_reduce", "nbytes": 8, "iterations": 3, "bursts": 2}
    with RankProcesses("distdbg", (), 2) as ranks:
        for level in ("OFF", "DETAIL"):
            times = ranks.ask({**order, "level": level})
            assert len(times) == 2
            assert min(times) > 0
        pids = [process.pid for process in ranks._ranks]
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_rank_that_fails_is_told_with_its_last_words() -> None:
    order = {"kind": "no such op", "nbytes": 8, "iterations": 1, "bursts": 1, "level": None}
    said = r"distdbg .*a rank has ended: \[rank 0\] ValueError: no such op"
    with pytest.raises(RankProcessesError, match=said), RankProcesses("distdbg", (), 1) as ranks:
        ranks.ask(order)
