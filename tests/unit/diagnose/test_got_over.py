"""Errors that the program caught and went on from, and those that it only seems to have got over."""

import pytest

from distdbg.diagnose.finding import FindingKind, Severity
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from distdbg.record.rank_state import RankState
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.whole_verdict import kinds, trained, words

OVER = [
    (Status.MISMATCH, "MismatchError", FindingKind.MISMATCH, Severity.NOTE),
    (Status.TIMEOUT, "OpTimeout", FindingKind.FAILED_OP, Severity.WARNING),
    (Status.PEER_LOST, "PeerLost", FindingKind.FAILED_OP, Severity.WARNING),
    (Status.NONFINITE, "NonFiniteError", FindingKind.NAN_SOURCE, Severity.WARNING),
    (Status.DIVERGED, "DivergedError", FindingKind.DIVERGED, Severity.WARNING),
]


def got_over(status: Status, type: str) -> SessionBuilder:
    """A job whose ranks have caught an error, and went on."""
    build = trained(4, is_live=True)
    build.group("dp", range(4))
    for rank in range(4):
        build.op(
            rank,
            "barrier",
            group="dp",
            at_s=2,
            ended_s=3,
            status=status,
            error=words(type, "it was", [0]),
        )
        build.op(rank, "all_reduce", at_s=4, ended_s=5)
    return build


@pytest.mark.parametrize(("status", "type", "kind", "severity"), OVER)
def test_a_wait_comes_before_an_error_that_the_program_went_on_from(
    status: Status, type: str, kind: FindingKind, severity: Severity
) -> None:
    build = got_over(status, type)
    verdict = diagnose(build.session)
    assert [(one.kind, one.severity) for one in verdict.findings] == [(kind, severity)]
    for rank in (0, 1, 3):
        build.op(rank, "barrier", at_s=88)
    build.seen(2, RankState.RUNNING, since_s=88, site="save.py:7 (save)")
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.STALL, kind]
    assert verdict.what.startswith("ranks 0-1,3 wait for rank 2")
    build.seen(2, RankState.STOPPED, since_s=88, why="SIGSTOP")
    assert kinds(diagnose(build.session)) == [FindingKind.STUCK_RANK, kind]


@pytest.mark.parametrize(("status", "type", "kind", "severity"), OVER)
def test_an_error_is_not_over_as_long_as_one_rank_has_not_gone_on(
    status: Status, type: str, kind: FindingKind, severity: Severity
) -> None:
    build = got_over(status, type)
    build.op(2, "barrier", at_s=6, ended_s=7, status=status, error=words(type, "it was", [0]))
    build.exit(2, Exit.RAISED, at_s=7.1, what=f"{type}: it was")
    build.end(2, at_s=7.5, cause="exited", exit_code=1)
    root = diagnose(build.session).root
    assert root is not None
    assert root.severity is Severity.ERROR


def test_ops_of_another_thread_do_not_get_a_rank_over_the_error_that_it_ends_with() -> None:
    build = got_over(Status.MISMATCH, "MismatchError")
    for rank in range(4):
        build.exit(rank, Exit.RAISED, at_s=6, what="MismatchError: it was")
    root = diagnose(build.session).root
    assert root is not None
    assert (root.kind, root.severity) == (FindingKind.MISMATCH, Severity.ERROR)
