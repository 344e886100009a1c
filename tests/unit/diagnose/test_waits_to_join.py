"""Ranks that wait in init_process_group for others, as a session and as a folder has them."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.load.run_folder import is_run, load_run
from distdbg.diagnose.session import Activity, RankLog, Session
from distdbg.diagnose.verdict import diagnose
from distdbg.record.ends import RankEnd, write_end
from distdbg.record.format import Exit
from distdbg.record.host import host_name
from distdbg.record.join_calls import JoinCall, JoinStep, write_join_call
from distdbg.record.observations import Observation, write_sighting
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame

S = 10**9
FRAMES = (RecordedFrame("/job/job.py", 23, "connect"), RecordedFrame("/job/job.py", 50, "main"))


def call(rank: int, size: int = 4, **facts: Any) -> JoinCall:
    known: dict[str, Any] = {"pid": 100 + rank, "host": "n01", "since_ns": S, "wall_ns": S}
    known |= {"as_rank": rank, "world_size": size, "started": 3, "where": "tcp://n01:29743"}
    known |= {"stack": FRAMES, "step": "connected", "is_connected": True}
    return JoinCall(rank=rank, **known | facts)


def end(rank: int, *, at_s: int = 46, **facts: Any) -> RankEnd:
    known: dict[str, Any] = {"cause": "signal", "signal": 15, "exit_code": None, "was_asked": True}
    return RankEnd(
        rank=rank,
        pid=100 + rank,
        host="n01",
        ended_ns=at_s * S,
        wall_ns=at_s * S,
        **known | facts,
    )


def session_of(*calls: JoinCall | None, end_s: int | None = 46) -> Session:
    logs = {}
    for rank, one in enumerate(calls):
        log = logs[rank] = RankLog(rank=rank, host="n01", pid=100 + rank, join=one)
        log.end = None if end_s is None else end(rank, at_s=end_s)
    session = Session(source="run", world_size=len(calls), ranks=logs, is_live=end_s is None)
    session.now_ns = (end_s or 46) * S
    return session


def root_of(session: Session) -> Finding:
    root = diagnose(session).root
    assert root is not None
    return root


def test_a_job_that_was_ended_hung_in_it() -> None:
    root = root_of(session_of(*(call(rank) for rank in range(3))))
    assert root.what == (
        "all 3 ranks waited 45 s in init_process_group at job.py:23 (connect) for rank 3, "
        "which was not started"
    )
    assert (root.kind, root.severity) == (FindingKind.MISSING_RANK, Severity.ERROR)
    assert (root.ranks, root.victims) == ((), (0, 1, 2))
    assert root.advice.startswith("init_process_group(world_size=4), but 3 ranks were started")
    assert [one.kind for one in root.follows] == [FindingKind.STOPPED]
    assert root.evidence[0].text == (
        "ranks 0-2 called init_process_group(world_size=4) at job.py:23 (connect), to meet at "
        "tcp://n01:29743, which they reached"
    )


def test_a_job_that_was_ended_soon_did_not_hang() -> None:
    verdict = diagnose(session_of(*(call(rank) for rank in range(3)), end_s=9))
    assert verdict.root is not None
    assert (verdict.root.kind, verdict.root.severity) == (FindingKind.STOPPED, Severity.NOTE)
    assert verdict.what.startswith(
        "the job was stopped by SIGTERM; all 3 ranks had waited 8.0 s in init_process_group"
    )


def test_a_job_that_still_waits_is_a_note_and_later_a_warning() -> None:
    root = root_of(session_of(*(call(rank) for rank in range(3)), end_s=None))
    assert root.what.startswith("all 3 ranks have waited 45 s in init_process_group")
    assert (root.kind, root.severity) == (FindingKind.STALL, Severity.WARNING)
    late = [call(rank, since_ns=40 * S) for rank in range(3)]
    assert root_of(session_of(*late, end_s=None)).severity is Severity.NOTE


def test_a_rank_that_never_called_it_is_the_cause() -> None:
    session = session_of(call(0, 3), call(1, 3), None)
    session.ranks[2].activity = Activity(
        state=RankState.ASLEEP, since_ns=S, site="/job/job.py:4 (load)", why="in time.sleep"
    )
    root = root_of(session)
    assert root.what == (
        "ranks 0-1 waited 45 s in init_process_group at job.py:23 (connect) for rank 2, asleep in load() at "
        "job.py:4"
    )
    assert (root.ranks, root.victims) == ((2,), (0, 1))
    assert root.advice == "see what rank 2 did before init_process_group"


def test_a_rank_that_died_before_comes_first() -> None:
    session = session_of(call(0, 3), call(1, 3), None)
    session.ranks[2].end = end(2, at_s=3, was_asked=False, signal=11)
    assert root_of(session).kind is FindingKind.DEAD_RANK


def test_who_had_joined_is_no_part_of_it() -> None:
    joined: list[JoinCall | None] = [call(rank, step="joined") for rank in range(3)]
    verdict = diagnose(session_of(*joined))
    assert verdict.what == "the job was stopped by SIGTERM; no rank waited for a late one"


def test_it_ended_when_the_launcher_said_so_and_not_when_the_last_process_was_gone() -> None:
    calls = [call(rank, step="ended", step_ns=41 * S) for rank in range(3)]
    assert root_of(session_of(*calls, end_s=71)).numbers["waited_s"] == 40


GAVE_UP = "DistStoreError: Timed out after 31 seconds waiting for clients. 3/4 clients joined."


@pytest.mark.parametrize("how", ["failed", "caught"])
def test_who_gave_up_waited_but_for_a_program_that_does_without(how: str) -> None:
    session = session_of(
        *(call(rank, step="failed", step_ns=7 * S, error=GAVE_UP) for rank in range(3))
    )
    for rank, log in session.ranks.items():
        code = 1 if how == "failed" else 0
        log.end = end(rank, cause="exited", exit_code=code, signal=None, was_asked=False)
        if code:
            log.exit, log.exit_what, log.exit_ns = Exit.RAISED, GAVE_UP, 7 * S
    verdict = diagnose(session)
    if how == "caught":
        assert not any(one.kind is FindingKind.MISSING_RANK for one in verdict.findings)
        return
    assert verdict.what.startswith("all 3 ranks waited 6.0 s in init_process_group")
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.MISSING_RANK


def interrupted(rank: int) -> JoinCall:
    error = "RendezvousError: rank 0 was interrupted while the ranks were meeting at x"
    error = error if rank else "KeyboardInterrupt: "
    return call(rank, step="failed", step_ns=40 * S, error=error)


def test_an_interrupt_of_one_rank_is_the_end_of_all_waits() -> None:
    session = session_of(*map(interrupted, range(3)))
    for rank in (1, 2):
        log = session.ranks[rank]
        log.end = end(rank, cause="exited", exit_code=1, signal=None, was_asked=False)
        log.exit, log.exit_what = Exit.RAISED, interrupted(rank).error
    root = root_of(session)
    assert root.what.startswith("all 3 ranks waited 39 s in init_process_group")
    assert root.severity is Severity.ERROR


# ------------------------------------------------------------------------------------- as a folder


def save(folder: Path, step: JoinStep, *, has_ended: bool) -> None:
    now_ns = time.monotonic_ns()
    for rank in range(2):
        one = call(rank, 3, step=step, host=host_name(), pid=os.getpid() + rank)
        one = replace(one, since_ns=now_ns - 60 * S, wall_ns=time.time_ns() - 60 * S)
        write_join_call(folder, one)
        if has_ended:
            gone = end(rank)
            write_end(
                folder,
                replace(gone, pid=one.pid, host=one.host, ended_ns=now_ns, wall_ns=time.time_ns()),
            )


def test_a_folder_without_records_and_ends_is_a_job_that_waits(tmp_path: Path) -> None:
    save(tmp_path, "connected", has_ended=False)
    seen = Observation(
        rank=2,
        pid=9,
        host=host_name(),
        state=RankState.ASLEEP,
        since_ns=time.monotonic_ns() - 50 * S,
        site="/job/job.py:4 (load)",
    )
    write_sighting(tmp_path, seen)
    assert is_run(tmp_path)
    session = load_run(tmp_path)
    assert (session.is_live, session.world_size, [*session.ranks]) == (True, 3, [0, 1, 2])
    root = root_of(session)
    assert root.what.startswith("ranks 0-1 have waited 1 min in init_process_group at job.py:23")
    assert root.what.endswith(" for rank 2, asleep in load() at job.py:4")
    assert not any("left no record" in one for one in session.lacks)


def test_a_folder_of_a_job_that_was_ended_has_all_its_ranks(tmp_path: Path) -> None:
    save(tmp_path, "connected", has_ended=True)
    session = load_run(tmp_path)
    assert not session.is_live
    verdict = diagnose(session)
    assert verdict.root is not None
    assert verdict.root.victims == (0, 1)
    assert session.ranks_without_record() == ()


def test_ranks_that_had_joined_and_left_no_record_are_said_to_be_missing(tmp_path: Path) -> None:
    save(tmp_path, "joined", has_ended=True)
    assert load_run(tmp_path).ranks_without_record() == (0, 1)
