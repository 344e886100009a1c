"""Who differs from whom in one op."""

from __future__ import annotations

import pytest

from distdbg.diagnose.comparing import Comparer
from distdbg.diagnose.find.mismatch_calls import differing_ranks, find_sides
from tests.support.session_builder import SessionBuilder


@pytest.mark.parametrize(
    ("kind", "root", "sizes", "odd"),
    [
        ("broadcast", 0, [4, 8, 8, 8], (0,)),
        ("broadcast", 0, [4, 0, 0, 0], (1, 2, 3)),  # they have no room for the root's array
        ("broadcast", 2, [4, 4, 8, 8], (0, 1)),  # the root's array is the one to fit
        ("reduce", 0, [4, 8, 8, 8], (0,)),
        ("reduce", 0, [4, 4, 8, 8], ()),
    ],
)
def test_the_majority_is_right_and_else_who_sends_to_all(
    kind: str, root: int, sizes: list[int], odd: tuple[int, ...]
) -> None:
    build = SessionBuilder(4)
    calls = {
        rank: build.op(rank, kind, root=root, dtype="float32", inputs=[(size,)])
        for rank, size in enumerate(sizes)
    }
    sides = find_sides(Comparer(build.session), calls)
    assert differing_ranks(build.session, sides) == odd
