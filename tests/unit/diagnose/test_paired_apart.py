"""A call on the wrong group that found a partner, from a line that no other rank comes to."""

from __future__ import annotations

import json

import pytest

from distdbg.diagnose.finding import Finding, FindingKind
from distdbg.diagnose.traits import Trait
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Status
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


def joined(
    shape: tuple[int, ...], kind: str = "all_reduce", dtypes: tuple[str, str] = ("float32", "int64")
) -> Finding:
    """Rank 0 has joined and makes the calls of a step at line 8; rank 1 makes one more of its own in each.

    The last one before the mismatch is of the kind, and has the shape on rank 0.
    """
    build = SessionBuilder(2)
    join, step, own = (f"/job/x.py:{line} (main)" for line in (8, 11, 14))
    for at in (1, 2):
        ended = {"at_s": at, "ended_s": at + 0.1}
        for rank in range(2):
            build.op(rank, "all_reduce", inputs=[(72,)], op="SUM", **ended, site=step)
            build.op(rank, "all_reduce", inputs=[()], op="SUM", **ended, site=own)
    for rank, sites in enumerate(((join, join), (step, own))):
        build.op(rank, "all_reduce", inputs=[(72,)], op="SUM", at_s=3, ended_s=3.1, site=sites[0])
        inputs = [shape] if rank == 0 else [()]
        build.op(rank, kind, inputs=inputs, op="SUM", at_s=4, ended_s=4.1, site=sites[1])
    what = "all_reduce #7 on group 'world' differs between ranks: float32[1] op SUM on rank 0"
    hint = "these are two different calls"
    for rank, (dtype, op) in enumerate(zip(dtypes, ("SUM", "MAX"), strict=True)):
        text = json.dumps({"type": "MismatchError", "what": what, "hint": hint})
        build.op(
            rank, "all_reduce", inputs=[(1,)], dtype=dtype, op=op, at_s=5, ended_s=5.1, site=join,
            status=Status.MISMATCH, error=text,
        )  # fmt: skip
    root = diagnose(build.session).root
    assert root is not None
    assert root.kind is FindingKind.MISMATCH
    return root


def test_before_a_mismatch_of_two_calls_the_one_that_paired_with_another_line_is_named() -> None:
    root = joined((1,))
    assert root.advice == (
        "compare x.py:8 and x.py:14: these calls paired at #6, and one of them may lack its counterpart"
    )
    assert (
        "all_reduce #6 on group 'world' went well though rank 0 called it at x.py:8 (main) and rank 1 at "
        "x.py:14 (main), with arrays of other shapes"
    ) in [fact.text for fact in root.evidence]


@pytest.mark.parametrize(
    ("kind", "dtypes"),
    [
        ("all_reduce", ("float32", "float32")),  # one call, with another argument
        ("scatter", ("float32", "int64")),  # its root alone has inputs
        ("all_gather", ("float32", "int64")),  # blocks may have sizes of their own
    ],
)
def test_a_call_that_may_differ_between_ranks_is_not_what_led_to_the_mismatch(
    kind: str, dtypes: tuple[str, str]
) -> None:
    root = joined((1,), kind, dtypes)
    assert "went well though" not in " ".join(fact.text for fact in root.evidence)
    assert "counterpart" not in root.advice


def test_where_all_calls_before_a_mismatch_had_one_shape_none_is_named() -> None:
    root = joined(())
    assert root.advice == "these are two different calls"
    assert Trait.DTYPES not in root.all_traits
