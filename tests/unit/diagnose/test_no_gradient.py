"""A hang or a death in DDP is told by the parameter that was not used."""

from __future__ import annotations

from dataclasses import replace

from distdbg.diagnose.find.no_gradient import tell_no_gradient, tell_no_gradients
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.diagnose.session import Session
from distdbg.record.entries import Event, MarkEntry, SpanBegin
from distdbg.record.known_marks import BACKWARD, NO_GRADIENT
from tests.support.session_builder import SessionBuilder

FOUND = Finding(
    kind=FindingKind.MISSING_RANK,
    severity=Severity.ERROR,
    what="rank 1 never called all_reduce #1 on group 'world', in which rank 0 waits",
    ranks=(1,),
    victims=(0,),
)


def notes(*names: str) -> tuple[Event, ...]:
    made: list[Event] = []
    for number, name in enumerate(names, start=1):
        common = {"number": number, "issued_ns": number, "thread": 1, "stack": (), "site": 0}
        fields = {key: value for key, value in common.items() if key in Event.__dataclass_fields__}
        if name == BACKWARD:
            made.append(SpanBegin(name=name, **fields))  # type: ignore[arg-type]
        else:
            made.append(MarkEntry(name=name, value=7.0, **fields))  # type: ignore[arg-type]
    return tuple(made)


def session_of(comm: str, *names: str) -> Session:
    build = SessionBuilder(world_size=2)
    build.op(0, "all_reduce", at_s=1.0)
    session = build.session
    session.comms.append(comm)
    session.ranks[0].ops.comm[-1] = 1
    session.ranks[1].notes = notes(*names)
    return session


def test_the_parameters_lead() -> None:
    session = session_of("DDP bucket 0 of fc2", BACKWARD, NO_GRADIENT + "fc2.weight, fc2.bias")
    found = tell_no_gradient(FOUND, session)
    assert found.what == (
        "rank 1 did not use fc2.weight, fc2.bias in step 7, whose DDP bucket it never reduced"
    )
    assert found.evidence[1].text == FOUND.what
    assert (found.ranks, found.victims) == ((1,), (0,))


def test_without_a_majority_the_rank_that_left_something_out_is_to_blame() -> None:
    session = session_of("DDP bucket 0", BACKWARD, NO_GRADIENT + "a, b, c")
    both = replace(FOUND, kind=FindingKind.MISMATCH, ranks=(), victims=(0, 1))
    found = tell_no_gradient(both, session)
    assert found.what.startswith("rank 1 did not use a, b and others in step 7")
    assert (found.ranks, found.victims) == ((1,), (0,))


def test_a_later_pass_that_used_all_explains_nothing() -> None:
    session = session_of("DDP bucket 0", BACKWARD, NO_GRADIENT + "a", BACKWARD)
    assert tell_no_gradient(FOUND, session) is FOUND


def test_an_op_that_is_no_bucket_has_another_cause() -> None:
    session = session_of("grads", BACKWARD, NO_GRADIENT + "a")
    assert tell_no_gradient(FOUND, session) is FOUND


def test_an_op_that_failed_is_led_where_nobody_was_seen_to_wait() -> None:
    session = session_of("DDP bucket 0", BACKWARD, NO_GRADIENT + "a")
    failed = replace(
        FOUND, kind=FindingKind.FAILED_OP, what="all_reduce #1 could not complete on rank 0"
    )
    led, alone = tell_no_gradients([FOUND, failed], session), tell_no_gradients([failed], session)
    assert [one.what.startswith("rank 1 did not use a in step 7") for one in led] == [True, False]
    assert alone[0].what.startswith("rank 1 did not use a in step 7")
    assert alone[0].evidence[1].text == failed.what


def test_a_lost_connection_is_not_explained_by_a_parameter() -> None:
    session = session_of("DDP bucket 0", BACKWARD, NO_GRADIENT + "a")
    lost = Evidence(text="rank 1: DistNetworkError: connection to rank 2 reset", rank=1)
    failed = replace(
        FOUND, kind=FindingKind.FAILED_OP, what="all_reduce #1 failed", evidence=(lost,)
    )
    assert tell_no_gradients([failed], session) == [failed]
