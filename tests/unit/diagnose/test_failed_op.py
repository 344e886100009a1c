"""Ops that failed: whose fault, and in which words."""

import pytest

from distdbg.diagnose.find import failed_op
from distdbg.diagnose.finding import Severity
from distdbg.record.format import Status
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.one_finder import error, find, find_one, trained


def test_ops_that_timed_out_alike_are_one_finding() -> None:
    build = trained(4)
    for rank in (1, 2, 3):
        words = error("OpTimeout", "barrier #2 waited 30 s for rank 0", ranks=[0], hint="raise it")
        build.op(
            rank,
            "barrier",
            at_s=60,
            ended_s=90,
            status=Status.TIMEOUT,
            error=words,
            site="/job/train.py:90 (main)",
        )
    finding = find_one(failed_op, build)
    assert finding.what == (
        "barrier #2 on group 'world' timed out on ranks 1-3 after 30 s: rank 0 did not reach it"
    )
    assert (finding.ranks, finding.victims, finding.seq) == ((0,), (1, 2, 3), 2)
    assert (finding.severity, finding.at_ns) == (Severity.ERROR, 90 * 10**9)
    assert finding.advice == "raise it"
    assert finding.evidence[0].site == "train.py:90 (main)"


@pytest.mark.parametrize(
    ("status", "reported"),
    [
        (Status.NETWORK, "lost a connection"),
        (Status.STORE, "failed in the store"),
        (Status.BROKEN, "could not run"),
        (Status.SYSTEM, "failed with DistBackendError"),
        (Status.FAILED, "failed with DistBackendError"),
        (77, "failed with DistBackendError"),
    ],
)
def test_an_op_that_left_no_words_is_told_by_its_status(status: int, reported: str) -> None:
    build = trained(2)
    build.op(0, "barrier", at_s=2, ended_s=3, status=status)
    finding = find_one(failed_op, build)
    assert finding.what == f"barrier #2 on group 'world' {reported}" + (
        ": its group was broken on rank 0" if "could" in reported else " on rank 0"
    )
    assert (finding.ranks, finding.victims) == ((), (0,))


def test_a_call_that_was_wrong_by_itself_blames_its_rank() -> None:
    build = trained(2)
    build.op(1, "barrier", at_s=2, ended_s=2, status=Status.USAGE, error="not so")
    finding = find_one(failed_op, build)
    assert (finding.ranks, finding.victims) == ((1,), ())
    assert finding.what.endswith("got wrong arguments on rank 1: not so")


def test_an_error_without_an_op_is_told_by_its_words() -> None:
    build = trained(2)
    build.found(0, "DistStoreError", "get 'key' timed out", at_s=4, kind="", group="")
    build.found(0, "Suspicion", "a remark", at_s=4)
    build.found(1, "OpTimeout", "it waited", at_s=4, kind="barrier", group="dp", seq=4, ranks=(0,))
    found = find(failed_op, build)
    assert [finding.what for finding in found] == [
        "an op failed in the store on rank 0: get 'key' timed out",
        "barrier #4 on group 'dp' timed out on rank 1: rank 0 did not reach it",
    ]


def test_a_failed_op_that_the_rank_got_over_is_a_warning() -> None:
    build = trained(2)
    build.op(0, "barrier", at_s=2, ended_s=3, status=Status.TIMEOUT, error="{broken json")
    build.op(0, "barrier", at_s=4, ended_s=5)
    assert find_one(failed_op, build).severity is Severity.WARNING


def test_thousands_of_failed_ops_of_a_rank_are_cut_in_the_middle() -> None:
    build = SessionBuilder(1)
    for step in range(1000):
        build.op(0, "barrier", at_s=step, ended_s=step + 0.5, status=Status.TIMEOUT)
    assert len(find(failed_op, build)) == 128
