"""An op that a rank makes while it handles an error: the error leads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdbg.diagnose.find.while_handling_error import tell_handled
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Trait
from tests.support.session_builder import SessionBuilder

FOUND = Finding(
    kind=FindingKind.MISMATCH,
    severity=Severity.ERROR,
    what="rank 1 skipped all_reduce #2",
    ranks=(1,),
    victims=(0,),
    advice="see why",
)


def session_of(handled: str, rank: int = 1) -> Session:
    build = SessionBuilder(world_size=2)
    build.op(0, "all_reduce", at_s=1)
    build.op(1, "barrier", at_s=1)
    build.session.ranks[rank].exit_handled = handled
    return build.session


def test_the_error_leads_and_the_finding_is_its_first_evidence() -> None:
    found = tell_handled(FOUND, session_of("ValueError: no number at a.py:3 (parse)"))
    assert found.what == (
        "rank 1 was handling ValueError: no number at a.py:3 when it called barrier"
    )
    assert [one.text for one in found.evidence] == [FOUND.what]
    assert found.advice.startswith("mend that error first")
    assert (found.ranks, found.victims, found.kind) == (FOUND.ranks, FOUND.victims, FOUND.kind)


def test_an_error_that_does_not_fit_is_told_whole_below() -> None:
    handled = f"ValueError: {'no ' * 50}number at a.py:3 (parse)"
    found = tell_handled(FOUND, session_of(handled))
    assert len(found.what) <= 120
    assert found.what.endswith(" number at a.py:3 when it called barrier")
    assert found.evidence[0].text == f"rank 1 was handling {handled}"


def test_a_rank_that_raised_something_else_is_told_by_that() -> None:
    dead = Finding(
        kind=FindingKind.DEAD_RANK,
        severity=Severity.ERROR,
        what="rank 1 raised KeyError",
        ranks=(1,),
    )
    found = tell_handled(dead, session_of("ValueError: no number at a.py:3 (parse)"))
    assert found.what == dead.what
    assert [one.text for one in found.evidence] == [
        "rank 1 was handling ValueError: no number at a.py:3 (parse)"
    ]


@pytest.mark.parametrize(("handled", "rank"), [("", 1), ("ValueError at a.py:3 (f)", 0)])
def test_without_one_and_on_other_ranks_nothing_changes(handled: str, rank: int) -> None:
    assert tell_handled(FOUND, session_of(handled, rank)) is FOUND


@pytest.mark.parametrize("what", ["KeyboardInterrupt", "ValueError: no step"])
def test_a_rank_that_sleeps_while_it_handles_an_error_is_told_with_it(what: str) -> None:
    stuck = Finding(
        kind=FindingKind.STUCK_RANK,
        severity=Severity.ERROR,
        what="rank 0 waited 37 s for rank 1, asleep in read() at storage.py:26",
        ranks=(1,),
        advice="see why it sleeps there",
        traits=frozenset((Trait.ASLEEP,)),
    )
    session = session_of("FileNotFoundError: shard-12.npy at storage.py:24 (read)")
    session.ranks[1].exit_what = what
    found = tell_handled(stuck, session)
    text = "rank 1 was handling FileNotFoundError: shard-12.npy at storage.py:24 (read)"
    if what == "KeyboardInterrupt":
        assert found.what == stuck.what
        assert found.evidence[0].text == f"{text} when it was interrupted"
        assert found.advice.startswith("see why that error comes again")
    else:  # it made that op within the handling
        assert found.what.endswith(" when it called barrier")


def test_a_rank_that_is_interrupted_in_an_op_keeps_the_hint() -> None:
    busy = replace(
        FOUND, kind=FindingKind.MISSING_RANK, what="rank 0 waits for rank 1, busy in f()"
    )
    session = session_of("ValueError: no number at a.py:3 (parse)")
    session.ranks[1].exit_what = "KeyboardInterrupt"
    assert tell_handled(busy, session).advice == FOUND.advice
