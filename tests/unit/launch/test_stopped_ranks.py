"""Which stops of ranks are the same, and which of other hosts are told of."""

from __future__ import annotations

from distdbg.control.holds import OTHER_HOST, USER_HOLD, Hold
from distdbg.launch.stopped_ranks import StoppedRank, StoppedRanks, stops_elsewhere

S = 1_000_000_000


def row(rank: int, host: str, since_s: float) -> dict[str, object]:
    return {"rank": rank, "host": host, "since_s": since_s, "why": "breakpoint", "site": ""}


def test_a_stop_of_this_host_is_known_by_its_moment() -> None:
    assert StoppedRank(3, 7).is_same(StoppedRank(3, 7))
    assert not StoppedRank(3, 7).is_same(StoppedRank(3, 8))
    assert not StoppedRank(3, 7).is_same(StoppedRank(4, 7))


def test_a_stop_elsewhere_is_known_about_as_well_as_it_is_told() -> None:
    first = StoppedRank(3, 20 * S, is_elsewhere=True)
    assert first.is_same(StoppedRank(3, 20 * S + S // 2, is_elsewhere=True))
    assert not first.is_same(StoppedRank(3, 22 * S, is_elsewhere=True))


def test_ranks_of_other_hosts_count_once_their_own_launcher_had_its_turn() -> None:
    rows = [row(0, "here", 9.0), row(5, "there", 9.0), row(6, "there", 0.2)]
    assert stops_elsewhere(rows, "here", 100 * S) == [StoppedRank(5, 91 * S, is_elsewhere=True)]


def test_only_ranks_are_debugged_not_pauses_nor_hosts() -> None:
    holds = [Hold(rank=2, pid=1, start_ticks=1, since_ns=5), USER_HOLD, Hold(rank=OTHER_HOST)]
    assert StoppedRanks("here").find(holds, None) == [StoppedRank(2, 5)]
