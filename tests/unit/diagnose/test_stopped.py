"""Jobs that somebody ended from outside."""

import pytest

from distdbg.diagnose.find import dead, failed_op, missing, stall, stopped, stuck
from distdbg.diagnose.finding import FindingKind, Severity
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.one_finder import error, find, find_one, trained


def test_an_abort_by_a_person_is_a_stop_and_no_failed_op() -> None:
    build = trained(2)
    words = error("JobAborted", "the job was aborted by ada: wrong config")
    for rank in range(2):
        build.op(rank, "barrier", at_s=2, ended_s=3, status=Status.ABORTED, error=words)
        build.exit(rank, Exit.RAISED, at_s=3, what="JobAborted: the job was aborted by ada")
    finding = find_one(stopped, build)
    assert finding.what == "the job was aborted by ada: wrong config"
    assert (finding.ranks, finding.victims) == ((), (0, 1))
    assert find(failed_op, build) == find(dead, build) == []


def test_a_debugger_that_was_quit_is_a_stop_and_no_failed_op() -> None:
    build = trained(2)
    words = error("DebuggerQuit", "rank 1 quit its debugger in breakpoint #1", ranks=[1])
    for rank in range(2):
        build.op(rank, "breakpoint", at_s=2, ended_s=3, status=Status.ABORTED, error=words)
        build.exit(rank, Exit.RAISED, at_s=3, what="DebuggerQuit: rank 1 quit its debugger")
    finding = find_one(stopped, build)
    assert finding.what == "rank 1 quit its debugger in breakpoint #1"
    assert find(failed_op, build) == find(dead, build) == []


def test_an_abort_by_the_agent_is_a_consequence_of_its_verdict() -> None:
    build = trained(2)
    words = error("JobAborted", "the job was aborted by the agent: rank 1 was killed", ranks=[1])
    build.op(0, "barrier", at_s=2, ended_s=3, status=Status.ABORTED, error=words)
    assert find(stopped, build) == []
    assert find_one(failed_op, build).ranks == (1,)


@pytest.mark.parametrize(
    ("number", "reported"),
    [(2, "Ctrl-C (SIGINT)"), (15, "SIGTERM"), (1, "SIGHUP"), (10, "SIGUSR1")],
)
def test_a_signal_at_all_ranks_is_a_stop_from_outside(number: int, reported: str) -> None:
    build = trained(2)
    for rank in range(2):
        build.end(rank, at_s=2 + rank / 10, cause="signal", signal=number)
    finding = find_one(stopped, build)
    assert finding.what == f"the job was stopped by {reported}"
    assert (finding.victims, finding.at_ns) == ((0, 1), 2 * 10**9)
    assert find(dead, build) == []


def test_ctrl_c_is_a_stop_from_the_keyboard() -> None:
    build = trained(2)
    build.exit(0, Exit.RAISED, at_s=2, what="KeyboardInterrupt")
    assert find_one(stopped, build).what == "the job was stopped by Ctrl-C (SIGINT)"


def test_a_signal_after_a_death_is_no_stop() -> None:
    build = trained(3)
    build.end(0, at_s=1.5, cause="signal", signal=11)
    for rank in (1, 2):
        build.end(rank, at_s=2, cause="signal", signal=15)
    assert find(stopped, build) == []
    assert find_one(dead, build).ranks == (0,)


def test_a_launcher_that_was_told_to_end_a_healthy_job_is_a_stop() -> None:
    build = trained(2)
    for rank in range(2):
        build.end(rank, at_s=2, cause="signal", signal=15, was_asked=True)
    assert find_one(stopped, build).what == "the job was stopped by SIGTERM"


def test_ranks_that_returned_are_nobodys_finding() -> None:
    build = trained(2)
    for rank in range(2):
        build.exit(rank, Exit.RETURNED, at_s=2)
        build.end(rank, at_s=2.1, cause="exited", exit_code=0)
    for finder in (dead, failed_op, missing, stall, stopped, stuck):
        assert find(finder, build) == []


def killed(*, at_s: float, is_in_op: bool) -> SessionBuilder:
    """All processes of a job are gone, and none of them has left an end."""
    build = SessionBuilder(3)
    build.session.was_killed = True
    build.session.now_ns = 100 * 10**9
    for rank in range(3):
        build.op(rank, "all_reduce", at_s=1, ended_s=2)
        if rank != 1 and is_in_op:
            build.op(rank, "all_reduce", at_s=at_s, site="/job/a.py:6 (main)")
    return build


def test_a_job_whose_processes_are_all_gone_was_killed_and_nobody_is_the_cause() -> None:
    verdict = diagnose(killed(at_s=99.99, is_in_op=True).session)
    assert verdict.what == (
        "the job was killed; ranks 0,2 had waited 10 ms for rank 1, which no agent saw"
    )
    assert verdict.root is not None
    assert (verdict.root.kind, verdict.root.severity) == (FindingKind.STOPPED, Severity.NOTE)


def test_what_a_killed_job_had_hung_in_comes_first() -> None:
    verdict = diagnose(killed(at_s=50, is_in_op=True).session)
    assert verdict.what.startswith(
        "ranks 0,2 waited 50 s for rank 1, which no agent saw; then the job was killed"
    )
    assert verdict.root is not None
    assert verdict.root.severity is Severity.ERROR


def test_a_program_that_ends_without_a_word_outside_of_ops_was_not_killed() -> None:
    assert diagnose(killed(at_s=0, is_in_op=False).session).root is None
