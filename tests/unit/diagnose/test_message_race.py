"""Receives that could as well have got another message."""

from __future__ import annotations

import pytest

from distdbg.diagnose.find import message_race
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from tests.support.session_builder import SessionBuilder

SENT, FIRST, SECOND = "job.py:3 (main)", "job.py:5 (main)", "job.py:6 (main)"


def find(session: Session) -> list[Finding]:
    return message_race.find(session, match(session), {})


def job(
    *,
    second_site: str = SECOND,
    drops: bool = True,
    barrier_between: bool = False,
    other_shape: tuple[int, ...] = (4,),
    other_tag: int = 0,
) -> Session:
    """Rank 0 receives from any, twice: the first message is rank 2's."""
    build = SessionBuilder(world_size=3)
    build.op(2, "send", peer=0, at_s=1.0, ended_s=1.3, site=SENT, inputs=[(4,)], dtype="float64")
    build.op(0, "recv", source=2, at_s=1.1, ended_s=1.2, site=FIRST)
    if barrier_between:
        for rank in range(3):
            build.op(rank, "barrier", at_s=1.4, ended_s=1.5)
    build.op(
        1, "send", peer=0, at_s=1.6, ended_s=1.9, site=SENT, inputs=[other_shape], dtype="float64",
        tag=other_tag,
    )  # fmt: skip
    build.op(0, "recv", source=1, at_s=1.7, ended_s=1.8, site=second_site, tag=other_tag)
    if drops:
        for site in {FIRST, second_site}:
            build.found(0, "SourceDropped", f"/home/me/{site}")
    return build.session


def test_a_receive_at_its_own_line_that_fits_another_message_is_a_warning() -> None:
    (finding,) = find(job())

    assert finding.kind is FindingKind.MESSAGE_RACE
    assert finding.severity is Severity.WARNING
    assert finding.ranks == (0,)
    assert finding.what == (
        "rank 0's recv at job.py:5 (main) took rank 2's message; rank 1's would have matched as well"
    )
    assert [fact.site for fact in finding.evidence] == [FIRST, SENT, SENT, SECOND]


def test_receives_of_one_line_are_a_note() -> None:
    (finding,) = find(job(second_site=FIRST))

    assert finding.severity is Severity.NOTE


def test_receives_of_one_line_with_other_shapes_are_a_warning() -> None:
    (finding,) = find(job(second_site=FIRST, other_shape=(8,)))

    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    "how", [{"drops": False}, {"barrier_between": True}, {"other_tag": 3}], ids=str
)
def test_no_race_where_somebody_asks_or_the_order_is_certain(how: dict[str, bool]) -> None:
    assert find(job(**how)) == []  # type: ignore[arg-type]


def test_records_that_are_not_whole_say_nothing() -> None:
    session = job()
    session.ranks[1].lost["ops"] = 5

    assert find(session) == []
