"""Which ranks count as dead: those that died of themselves, not those that the launcher ended then."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from distdbg.export.exporter.one_run import RunMeter
from distdbg.export.metrics.rank_facts import RankReader
from distdbg.follow.roster import Roster
from distdbg.record.ends import RankEnd, write_end
from distdbg.record.folders import record_name
from distdbg.record.rank_state import RankState
from tests.support.record_builder import RecordBuilder

HOST = "n14"
PIDS = {rank: 2**22 + rank + 1 for rank in range(4)}  # no process has such a number
KILLED = 9
ENDED = 15


def end(rank: int, signal: int | None, *, code: int | None = None, was_asked: bool) -> RankEnd:
    return RankEnd(
        rank=rank,
        pid=PIDS[rank],
        host=HOST,
        ended_ns=time.monotonic_ns(),
        wall_ns=time.time_ns(),
        cause="exited" if signal is None else "signal",
        signal=signal,
        exit_code=code,
        was_asked=was_asked,
    )


#: One is killed. Two of the others go at SIGTERM, one on its way out with a code of its own.
ENDS = (
    end(1, KILLED, was_asked=False),
    end(0, ENDED, was_asked=True),
    end(2, ENDED, was_asked=True),
    end(3, None, code=1, was_asked=True),
)


def put_records(folder: Path) -> None:
    for rank, pid in PIDS.items():
        builder = RecordBuilder(rank=rank, world_size=4, host=HOST, pid=pid)
        builder.add_group("world", ranks="0-3", size=4, rank=rank)
        (folder / record_name(rank)).write_bytes(builder.to_bytes())


def put_ends(folder: Path, ends: Iterable[RankEnd]) -> None:
    for one in ends:
        write_end(folder, one)


def test_of_a_run_that_is_over_only_the_rank_that_was_killed_is_dead(tmp_path: Path) -> None:
    put_records(tmp_path)
    put_ends(tmp_path, ENDS)
    [metrics] = RunMeter(tmp_path, "run", 0.0).collect()
    assert metrics.value("distdbg_dead_ranks") == 1
    assert metrics.value("distdbg_ranks", "dead") == 1
    assert metrics.value("distdbg_ranks", "failed") == 0
    assert metrics.value("distdbg_ranks", "ended") == 3


def test_an_agent_that_is_told_who_was_asked_to_end_says_the_same(tmp_path: Path) -> None:
    put_records(tmp_path)
    roster = Roster(tmp_path, HOST, is_reported=True)
    try:
        roster.tick(time.monotonic_ns())
        for one in ENDS:
            roster.on_reported_end(one)
        ranks = RankReader().read(roster, time.monotonic_ns())
    finally:
        roster.close()
    assert [rank.is_dead for rank in ranks] == [False, True, False, False]
    assert not any(rank.is_up for rank in ranks)


def test_a_rank_that_fails_by_itself_beside_another_is_dead_as_well(tmp_path: Path) -> None:
    put_records(tmp_path)
    put_ends(tmp_path, [ENDS[0], end(0, None, code=3, was_asked=False), *ENDS[2:]])
    [metrics] = RunMeter(tmp_path, "run", 0.0).collect()
    assert metrics.value("distdbg_dead_ranks") == 2
    assert metrics.value("distdbg_ranks", RankState.FAILED) == 1
