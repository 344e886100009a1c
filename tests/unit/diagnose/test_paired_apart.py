"""A call on the wrong group that found a partner, from a line that no other rank comes to."""

from __future__ import annotations

import pytest

from distdbg.diagnose.finding import Finding, FindingKind
from distdbg.diagnose.verdict import diagnose
from tests.support.session_builder import SessionBuilder

ROW, OWN, COL = "/j/p.py:16 (main)", "/j/p.py:18 (main)", "/j/p.py:20 (main)"
ROWS = {0: "a", 1: "a", 2: "b", 3: "b"}
COLS = {0: "c", 2: "c", 1: "d", 3: "d"}


def mesh(rounds: int, odd_line: str) -> Finding:
    """Rank 3 calls on its row instead of its column in the last round; it pairs with rank 2's next call."""
    build = SessionBuilder(4)
    for label, ranks in {"a": (0, 1), "b": (2, 3), "c": (0, 2), "d": (1, 3)}.items():
        build.group(label, ranks)
    for at in range(rounds):
        for rank in range(4):
            build.op(rank, "all_reduce", group=ROWS[rank], at_s=at, ended_s=at + 0.1, site=ROW)
            if at < rounds - 1 or rank in (0, 2):
                build.op(
                    rank, "all_reduce", group=COLS[rank], at_s=at + 0.2, ended_s=at + 0.3, site=COL
                )
    # Rank 3 is a call ahead on 'b'; rank 1 waits for it on 'd'.
    build.op(3, "all_reduce", group="b", at_s=rounds - 0.8, ended_s=rounds + 0.1, site=odd_line)
    build.op(2, "all_reduce", group="b", at_s=rounds, ended_s=rounds + 0.1, site=ROW)
    build.op(1, "all_reduce", group="d", at_s=rounds - 0.8, site=COL)
    build.op(0, "all_reduce", group="a", at_s=rounds, site=ROW)
    build.op(2, "all_reduce", group="c", at_s=rounds + 0.2, site=COL)
    build.op(3, "all_reduce", group="b", at_s=rounds + 0.2, site=ROW)
    root = diagnose(build.session).root
    assert root is not None
    assert root.kind is FindingKind.DEADLOCK
    return root


def test_the_rank_that_called_from_a_line_of_its_own_is_the_cause() -> None:
    root = mesh(4, OWN)
    assert root.ranks == (3,)
    assert root.what == (
        "ranks 0-3 are deadlocked: rank 3 called all_reduce on group 'b' at p.py:18, rank 2 at p.py:16"
    )
    assert root.advice.startswith("see why rank 3 came to p.py:18")
    [extra] = [fact for fact in root.evidence if fact.is_extra]
    assert extra.text.endswith("it paired with the call of rank 2 at p.py:16 (main)")


@pytest.mark.parametrize(("rounds", "line"), [(1, OWN), (4, ROW)], ids=["no rule yet", "one line"])
def test_without_a_line_of_its_own_nobody_is_blamed_for_it(rounds: int, line: str) -> None:
    assert "p.py:18" not in mesh(rounds, line).what
