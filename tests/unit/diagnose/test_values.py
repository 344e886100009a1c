"""What checks have said of values: replicas that diverged, where NaN came from, suspicions."""

from __future__ import annotations

from distdbg.diagnose.find import diverged, nan_source, suspicion
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from distdbg.record.format import Status
from tests.support.session_builder import SessionBuilder


def nan_sources(session: Session) -> list[Finding]:
    return nan_source.find(session, match(session), {})


def has_nan(build: SessionBuilder, group: str, by: int, ranks: range, *, at_s: float) -> None:
    """An op that all of `ranks` see fail."""
    for rank in ranks:
        op = build.op(
            rank, "all_reduce", group=group, at_s=at_s, ended_s=at_s + 0.1,
            status=Status.NONFINITE, site="train.py:40 (loss)",
        )  # fmt: skip
        seq = build.session.ranks[rank].ops.seq[op.at]
        build.found(
            rank, "NonFiniteError", f"all_reduce #{seq} on group '{group}' was given NaN or Inf by rank {by}",
            at_s=at_s + 0.1, group=group, seq=seq, kind="all_reduce", ranks=(by,),
        )  # fmt: skip


def test_the_first_op_that_was_given_nan_is_the_source() -> None:
    build = SessionBuilder(world_size=3)
    has_nan(build, "world", 2, range(3), at_s=1.0)

    (finding,) = nan_sources(build.session)

    assert finding.kind is FindingKind.NAN_SOURCE
    assert finding.ranks == (2,)
    assert finding.victims == (0, 1)
    assert finding.what == "all_reduce #1 on group 'world' was given NaN or Inf by rank 2"
    assert finding.evidence[0].site == "train.py:40 (loss)"


def test_a_rank_that_has_met_the_source_since_has_it_from_there() -> None:
    build = SessionBuilder(world_size=4)
    build.group("left", (0, 1))
    build.group("right", (2, 3))
    has_nan(build, "left", 1, range(2), at_s=1.0)
    for rank in range(4):
        build.op(rank, "all_reduce", at_s=2.0, ended_s=2.1)
    has_nan(build, "right", 3, range(2, 4), at_s=3.0)

    (finding,) = nan_sources(build.session)

    assert finding.ranks == (1,)
    assert finding.victims == (0, 3)
    assert any("later rank 3 gave NaN" in e.text for e in finding.evidence)


def test_a_message_carries_it_too() -> None:
    build = SessionBuilder(world_size=4)
    build.group("left", (0, 1))
    build.group("right", (2, 3))
    has_nan(build, "left", 1, range(2), at_s=1.0)
    build.op(1, "send", peer=2, at_s=2.0, ended_s=2.1)
    build.op(2, "recv", peer=1, source=1, at_s=2.0, ended_s=2.1)
    has_nan(build, "right", 2, range(2, 4), at_s=3.0)

    assert [finding.ranks for finding in nan_sources(build.session)] == [(1,)]


def test_a_rank_that_has_not_met_the_source_is_another_source() -> None:
    build = SessionBuilder(world_size=4)
    build.group("left", (0, 1))
    build.group("right", (2, 3))
    has_nan(build, "left", 1, range(2), at_s=1.0)
    has_nan(build, "right", 3, range(2, 4), at_s=3.0)

    assert [finding.ranks for finding in nan_sources(build.session)] == [(1,), (3,)]


def test_a_broadcast_from_elsewhere_carries_nothing() -> None:
    build = SessionBuilder(world_size=4)
    build.group("left", (0, 1))
    build.group("right", (2, 3))
    has_nan(build, "left", 1, range(2), at_s=1.0)
    for rank in range(4):
        build.op(rank, "broadcast", at_s=2.0, ended_s=2.1, root=2)
    has_nan(build, "right", 3, range(2, 4), at_s=3.0)

    assert len(nan_sources(build.session)) == 2


def test_where_the_words_are_lost_the_op_still_says_it() -> None:
    build = SessionBuilder(world_size=2)
    for rank in (0, 1):
        build.op(rank, "all_reduce", at_s=1.0, ended_s=1.1, status=Status.NONFINITE)

    (finding,) = nan_sources(build.session)

    assert finding.what == "all_reduce #1 on group 'world' was given NaN or Inf by ranks 0-1"


def test_replicas_that_diverged_are_one_finding_for_all_who_say_so() -> None:
    build = SessionBuilder(world_size=3)
    for rank in range(3):
        build.found(
            rank, "DivergedError",
            "assert_same on group 'world': 'weights' differs on rank 1 from the other ranks'",
            at_s=1.0, group="world", kind="assert_same", ranks=(1,),
            details=("0.0 on rank 1", "1.0 on ranks 0,2"),
        )  # fmt: skip

    (finding,) = diverged.find(build.session, match(build.session), {})

    assert finding.kind is FindingKind.DIVERGED
    assert finding.severity is Severity.ERROR
    assert finding.ranks == (1,)
    assert finding.victims == (0, 2)
    assert [e.text for e in finding.evidence] == ["0.0 on rank 1", "1.0 on ranks 0,2"]


def test_without_a_majority_nobody_is_blamed_for_diverged_replicas() -> None:
    build = SessionBuilder(world_size=2)
    for rank in range(2):
        build.found(rank, "DivergedError", "they differ", group="world", ranks=(0, 1))

    (finding,) = diverged.find(build.session, match(build.session), {})

    assert finding.ranks == ()
    assert finding.victims == (0, 1)


def test_an_op_with_that_status_is_enough_for_diverged_replicas() -> None:
    build = SessionBuilder(world_size=2)
    for rank in (0, 1):
        build.op(rank, "all_reduce", at_s=1.0, ended_s=1.1, status=Status.DIVERGED)

    (finding,) = diverged.find(build.session, match(build.session), {})

    assert finding.what == "all_reduce #1 on group 'world' left different results on its ranks"


def test_a_suspicion_is_told_once_with_the_odd_rank() -> None:
    build = SessionBuilder(world_size=3)
    for rank in range(3):
        build.found(
            rank, "Suspicion", "op #1 and op #2 on group 'world' look swapped between ranks",
            at_s=1.0, group="world", seq=1, ranks=(1,), details=("rank 1 came from a.py:3 (f)",),
        )  # fmt: skip

    (finding,) = suspicion.find(build.session, match(build.session), {})

    assert finding.kind is FindingKind.SUSPICION
    assert finding.severity is Severity.WARNING
    assert finding.ranks == (1,)
    assert finding.numbers["ranks"] == 3


def test_a_session_without_errors_has_none_of_these() -> None:
    build = SessionBuilder(world_size=2)
    for rank in (0, 1):
        build.op(rank, "all_reduce", at_s=1.0, ended_s=1.1)
        build.found(rank, "OpTimeout", "all_reduce #2 timed out", group="world", seq=2)
    matched = match(build.session)

    for finder in (diverged, nan_source, suspicion):
        assert finder.find(build.session, matched, {}) == []
