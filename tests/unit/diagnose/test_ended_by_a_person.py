"""A job that was ended while it hung: the state that the end interrupted comes before it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from distdbg.diagnose.finding import FindingKind, Severity, Verdict
from distdbg.diagnose.session import Activity
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from distdbg.record.rank_state import RankState
from tests.support.session_builder import SessionBuilder

S = 10**9
WAITERS = (0, 1, 3)
SAID = "ranks 0-1,3 waited 1 min 39 s for rank 2, asleep in load() at slp.py:7; then "


def words(type: str, what: str, ranks: Any = ()) -> str:
    return json.dumps({"type": type, "what": what, "ranks": list(ranks)})


def hung(end_s: float = 101.0, **op: Any) -> SessionBuilder:
    """Ranks 0, 1 and 3 wait for rank 2 from 2 s on."""
    build = SessionBuilder(4, now_s=end_s + 1)
    for rank in range(4):
        build.op(rank, "all_reduce", at_s=1, ended_s=1.5, site="/job/slp.py:9 (<module>)")
    facts = {"ended_s": end_s, "status": Status.ABORTED, **op} if op else {}
    for rank in WAITERS:
        build.op(rank, "all_reduce", at_s=2, site="/job/slp.py:12 (<module>)", **facts)
    return build


def asleep(build: SessionBuilder) -> None:
    build.seen(2, RankState.ASLEEP, since_s=3, site="/job/slp.py:7 (load)")


def killed(build: SessionBuilder, number: int, end_s: float = 101.0, **facts: Any) -> None:
    for rank in range(4):
        build.end(rank, at_s=end_s + rank / 100, cause="signal", signal=number, **facts)


def cause(verdict: Verdict) -> tuple[tuple[int, ...], FindingKind, Severity, list[FindingKind]]:
    assert verdict.root is not None
    below = sorted({one.kind for one in verdict.root.follows})
    return verdict.root.ranks, verdict.root.kind, verdict.root.severity, below


@pytest.mark.parametrize(
    ("number", "reported"),
    [(15, "SIGTERM"), (2, "Ctrl-C (SIGINT)"), (1, "SIGHUP"), (10, "SIGUSR1")],
)
def test_a_signal_to_the_launcher_is_no_cause_of_a_hang(number: int, reported: str) -> None:
    build = hung()
    asleep(build)
    killed(build, number, was_asked=True)
    verdict = diagnose(build.session)
    assert verdict.what == f"{SAID}the job was stopped by {reported}"
    assert cause(verdict) == ((2,), FindingKind.STUCK_RANK, Severity.ERROR, [FindingKind.STOPPED])
    assert verdict.root is not None
    assert verdict.root.victims == WAITERS
    assert verdict.has_faults
    assert verdict.is_root_a_fault


@pytest.mark.parametrize(
    ("number", "reported"), [(15, "SIGTERM"), (2, "Ctrl-C (SIGINT)"), (None, "its launcher")]
)
def test_who_told_the_launcher_is_told_though_the_program_ends_by_a_code_of_its_own(
    number: int | None, reported: str
) -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        asked = {"cause": "exited", "exit_code": 4, "was_asked": True}
        build.op(rank, "all_reduce", at_s=1, ended_s=1.5)
        build.end(rank, at_s=3 + rank / 100, asked_by=number, **asked)
    verdict = diagnose(build.session)
    assert verdict.root is not None
    assert verdict.what.startswith(f"the job was stopped by {reported}; ")


@pytest.mark.parametrize("asked_s", [1.9, 2.1])
def test_what_a_rank_raised_since_it_was_told_to_end_is_no_failure_of_its_own(
    asked_s: float,
) -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "all_reduce", at_s=1, ended_s=1.5)
    build.exit(0, Exit.RAISED, at_s=2, what="ValueError: no more")
    asked = {"was_asked": True, "asked_by": 2, "asked_ns": int(asked_s * S)}
    for rank in range(2):
        build.end(rank, at_s=2.5, cause="exited", exit_code=1, **asked)
    verdict = diagnose(build.session)
    assert verdict.root is not None
    assert verdict.root.kind is (FindingKind.STOPPED if asked_s < 2 else FindingKind.DEAD_RANK)


@pytest.mark.parametrize("number", [15, 2, 1])
def test_a_signal_from_torchrun_or_the_scheduler_is_none_either(number: int) -> None:
    build = hung()
    asleep(build)
    killed(build, number, by="agent")
    assert cause(diagnose(build.session))[:3] == ((2,), FindingKind.STUCK_RANK, Severity.ERROR)


def test_a_kill_of_all_ranks_at_once_is_how_a_hung_job_ended() -> None:
    build = hung()
    asleep(build)
    killed(build, 9, by="agent")
    verdict = diagnose(build.session)
    assert verdict.what == f"{SAID}all ranks were killed by SIGKILL"
    assert cause(verdict) == ((2,), FindingKind.STUCK_RANK, Severity.ERROR, [FindingKind.DEAD_RANK])


def test_the_kill_of_one_rank_is_a_death_whatever_others_waited_for() -> None:
    build = hung()
    asleep(build)
    build.end(2, at_s=101, cause="signal", signal=9)
    root = diagnose(build.session).root
    assert root is not None
    assert (root.kind, root.ranks) == (FindingKind.DEAD_RANK, (2,))


def test_ctrl_c_that_breaks_the_op_on_other_ranks_blames_nobody_who_did_nothing() -> None:
    """Rank 0 raises KeyboardInterrupt in the op; the others find their group broken by it."""
    build = hung()
    asleep(build)
    build.session.ranks[2].activities = (build.session.ranks[2].activity,)  # type: ignore[assignment]
    build.seen(2, RankState.RUNNING, since_s=101.05, why="raised KeyboardInterrupt")
    for rank in WAITERS:
        log = build.session.ranks[rank]
        log.ops.ended_ns[1] = round((101 + rank / 1000) * S)
        log.ops.status[1] = Status.INTERRUPTED if rank == 0 else Status.BROKEN
        if rank:
            log.ops.errors[1] = words("CollectiveError", "rank 0 was interrupted in op #2", [0])
        what = "CollectiveError: cannot run" if rank else "KeyboardInterrupt"
        build.exit(rank, Exit.RAISED, at_s=101.1, what=what)
    build.exit(2, Exit.RAISED, at_s=101.1, what="KeyboardInterrupt")
    killed(build, 2, 101.2, was_asked=True)
    verdict = diagnose(build.session)
    assert verdict.what == f"{SAID}the job was stopped by Ctrl-C (SIGINT)"
    below = [FindingKind.FAILED_OP, FindingKind.STOPPED]
    assert cause(verdict) == ((2,), FindingKind.STUCK_RANK, Severity.ERROR, below)


@pytest.mark.parametrize("later_s", [0.002, -0.002], ids=["after rank 0", "before rank 0"])
def test_ctrl_c_blames_nobody_whichever_rank_writes_its_end_of_the_op_first(later_s: float) -> None:
    build = hung(end_s=12)
    asleep(build)
    for rank in WAITERS:
        log = build.session.ranks[rank]
        log.ops.ended_ns[1] = round((12 + (later_s if rank else 0)) * S)
        log.ops.status[1] = Status.BROKEN if rank else Status.INTERRUPTED
        if rank:
            log.ops.errors[1] = words("CollectiveError", "rank 0 was interrupted in op #2", [0])
        what = "CollectiveError: rank 0 was interrupted in op #2" if rank else "KeyboardInterrupt"
        build.exit(rank, Exit.RAISED, at_s=12.1, what=what)
    build.exit(2, Exit.RAISED, at_s=12.1, what="KeyboardInterrupt")
    killed(build, 2, 12.2, was_asked=True)
    root = diagnose(build.session).root
    assert root is not None
    assert (root.kind, root.ranks, root.severity) == (FindingKind.STOPPED, (2,), Severity.NOTE)
    assert [one.kind for one in root.follows] == [FindingKind.FAILED_OP]


def test_an_op_that_timed_out_names_where_the_missing_rank_was() -> None:
    error = words("OpTimeout", "it waited 99 s for rank 2", [2])
    build = hung(status=Status.TIMEOUT, error=error)
    asleep(build)
    for rank in WAITERS:
        build.exit(rank, Exit.RAISED, at_s=101.1, what="OpTimeout: it waited")
        build.end(rank, at_s=101.3, cause="exited", exit_code=1)
    build.end(2, at_s=103, cause="signal", signal=15, was_asked=True)
    verdict = diagnose(build.session)
    assert verdict.what == f"{SAID}the op timed out"
    assert cause(verdict) == ((2,), FindingKind.STUCK_RANK, Severity.ERROR, [FindingKind.FAILED_OP])


def test_an_abort_by_a_person_is_no_cause_of_a_hang() -> None:
    error = words("JobAborted", "the job was aborted by ada: it hangs")
    build = hung(status=Status.ABORTED, error=error)
    asleep(build)
    verdict = diagnose(build.session)
    assert verdict.what == f"{SAID}the job was aborted by ada: it hangs"
    assert cause(verdict)[:3] == ((2,), FindingKind.STUCK_RANK, Severity.ERROR)


def test_where_nobody_saw_the_rank_that_is_said_and_its_last_op_is_shown() -> None:
    build = hung()
    killed(build, 15, was_asked=True)
    verdict = diagnose(build.session)
    assert verdict.what.startswith(
        "ranks 0-1,3 waited 1 min 39 s for rank 2, which no agent saw; then the job was stopped by SIGTERM"
    )
    assert cause(verdict) == ((2,), FindingKind.MISSING_RANK, Severity.ERROR, [FindingKind.STOPPED])
    assert verdict.root is not None
    texts = [one.text for one in verdict.root.evidence]
    assert "no agent saw what rank 2 did instead" in texts
    assert "rank 2 last called all_reduce #1 on group 'world' at slp.py:9 (<module>)" in texts


def test_a_job_that_was_ended_while_nothing_was_wrong_says_just_that() -> None:
    build = SessionBuilder(4, now_s=50)
    for rank in range(4):
        build.op(rank, "all_reduce", at_s=1, ended_s=49)
    killed(build, 15, 49.5, was_asked=True)
    verdict = diagnose(build.session)
    assert verdict.what == "the job was stopped by SIGTERM; no rank waited for a late one"
    build.session.stopped_by = "anna"
    what = "the job was stopped by anna (distdbg stop); no rank waited for a late one"
    again = diagnose(build.session)
    assert again.what == what
    assert again.root is not None
    assert "scheduler" not in again.root.advice
    assert verdict.root is not None
    assert (verdict.root.kind, verdict.root.severity) == (FindingKind.STOPPED, Severity.NOTE)
    assert not verdict.has_faults
    assert not verdict.is_root_a_fault


def test_waits_shorter_than_the_table_asks_for_are_no_hang() -> None:
    build = hung(end_s=12)
    asleep(build)
    killed(build, 15, 12, was_asked=True)
    verdict = diagnose(build.session)
    assert verdict.what == (
        "the job was stopped by SIGTERM; ranks 0-1,3 had waited 10 s for rank 2, "
        "asleep in load() at slp.py:7"
    )
    assert not verdict.has_faults
    (stop,) = verdict.findings
    assert (stop.kind, stop.severity, stop.follows) == (FindingKind.STOPPED, Severity.NOTE, ())
    assert (stop.ranks, stop.victims) == ((2,), (0, 1, 3))
    assert stop.evidence[0].rank == 2
    assert "see what rank 2 did there" in stop.advice


def test_ops_that_a_stop_broke_are_notes_as_the_stop_is() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "all_reduce", at_s=1, ended_s=2)
        broken = words("CollectiveError", "its group was broken on rank 1")
        build.op(rank, "all_reduce", at_s=3, ended_s=4, status=Status.ABORTED, error=broken)
        build.end(rank, at_s=3.9, cause="signal", signal=2, was_asked=True)
    verdict = diagnose(build.session)
    assert not verdict.has_faults
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.STOPPED
    assert {f.severity for f in verdict.root.follows} == {Severity.NOTE}


def test_a_stop_of_a_hang_is_told_where_the_rank_was_before_it_was_struck() -> None:
    """What an agent sees of a rank that is just being ended is no place that it hung in."""
    build = hung()
    build.session.ranks[2].activities = (
        Activity(state=RankState.ASLEEP, since_ns=3 * S, site="/job/slp.py:7 (load)"),
    )
    build.seen(2, RankState.RUNNING, since_s=101.2, site="/job/slp.py:99 (on_sigterm)")
    killed(build, 15, was_asked=True)
    assert diagnose(build.session).what == f"{SAID}the job was stopped by SIGTERM"


def test_a_rank_that_left_and_whose_end_nobody_saw_is_not_dead() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "all_reduce", at_s=1, ended_s=2)
        build.exit(rank, Exit.LEFT, at_s=3)
    build.end(1, at_s=3.1, cause="unknown", by="agent")
    verdict = diagnose(build.session)
    assert verdict.root is None, verdict.what
    build.op(0, "barrier", at_s=4)
    build.session.ranks[0].exit = None
    root = diagnose(build.session).root
    assert root is not None
    assert root.kind is not FindingKind.DEAD_RANK
