"""Ranks that wait in init_process_group, as agents see them before there is a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from distdbg.agent.judging.account import AccountMaker
from distdbg.agent.judging.diagnosis_triggers import find_triggers
from distdbg.agent.judging.judge import judge_accounts, plain_waits
from distdbg.agent.judging.live_session import LiveFacts, ReceivedAccount
from distdbg.agent.policy import find_proven_kind
from distdbg.diagnose.traits import Trait
from distdbg.follow.joining import note_joins
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.ends import RankEnd
from distdbg.record.join_calls import JoinCall, write_join_call
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame

S = 10**9
CALL = JoinCall(
    rank=0,
    pid=10,
    host="n1",
    since_ns=100 * S,
    wall_ns=1100 * S,
    as_rank=0,
    world_size=3,
    started=3,
    where="tcp://n1:29500",
    stack=(RecordedFrame("/job/job.py", 23, "connect"),),
)


def watched_ranks(folder: Path) -> dict[int, WatchedRank]:
    """Ranks 0 and 2 have called it, rank 1 has not."""
    for rank in (0, 2):
        write_join_call(folder, replace(CALL, rank=rank, pid=10 + rank, as_rank=rank))
    return {rank: WatchedRank(rank=rank, host="n1", pid=10 + rank) for rank in range(3)}


def test_their_rows_say_for_whom_they_wait(tmp_path: Path) -> None:
    known = watched_ranks(tmp_path)
    assert note_joins(tmp_path, known, 112 * S) == {0, 2}
    rows = {rank: watched.row(112 * S) for rank, watched in known.items()}
    assert [rows[rank].state for rank in range(3)] == ["waiting", "starting", "waiting"]
    assert rows[0].op == "init_process_group"
    assert rows[0].site == "job.py:23 (connect)"
    assert rows[0].why == "for rank 1"
    assert rows[0].state_age_s == 12.0
    known[1].place_start(RankState.ASLEEP, "", "job.py:7 (load)", None)
    assert note_joins(tmp_path, known, 113 * S) == set()
    assert known[0].row(113 * S).why == "for rank 1, asleep in load() at job.py:7"
    known[1].end = RankEnd(
        rank=1, pid=11, host="n1", ended_ns=114 * S, wall_ns=1, cause="exited", exit_code=0
    )
    note_joins(tmp_path, known, 115 * S)
    assert known[0].row(115 * S).why == "for rank 1, which exited with code 0 before"


def test_who_has_joined_or_is_another_process_does_not_wait(tmp_path: Path) -> None:
    known = watched_ranks(tmp_path)
    write_join_call(tmp_path, replace(CALL, step="joined", step_ns=101 * S))
    known[2].pid = 99
    note_joins(tmp_path, known, 112 * S)
    assert not any(watched.is_joining for watched in known.values())
    assert find_triggers(known.values(), 112 * S) == ()


def test_the_root_judges_them_once_they_have_waited_for_longer_than_ranks_start_apart(
    tmp_path: Path,
) -> None:
    known = watched_ranks(tmp_path)
    note_joins(tmp_path, known, 103 * S)
    assert find_triggers(known.values(), 103 * S) == ()
    assert find_triggers(known.values(), 106 * S)
    known[1].place_start(RankState.ASLEEP, "", "job.py:7 (load)", None)
    account = AccountMaker("n1").make(known.values(), 130 * S)
    facts = LiveFacts(now_ns=130 * S, wall_ns=1130 * S)
    judged = judge_accounts([ReceivedAccount(account, 130 * S)], facts)
    root = judged.verdict.root
    assert root is not None
    assert (root.ranks, root.victims) == ((1,), (0, 2))
    assert root.has(Trait.JOINING)
    assert root.what == (
        "ranks 0,2 have waited 30 s in init_process_group at job.py:23 (connect) for rank 1, "
        "asleep in load() at job.py:7"
    )
    waits = plain_waits(judged)
    assert [(one["rank"], one["on"], one["op"]) for one in waits] == [
        (0, [1], "init_process_group"),
        (2, [1], "init_process_group"),
    ]
    assert all(one["can_go_on"] for one in waits)
    assert find_proven_kind(judged.session, root, [0, 2]) is None
