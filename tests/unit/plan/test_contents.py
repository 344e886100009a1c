"""Symbolic memory behaves like an array with one value for each byte."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.runtime.plan.contents import Content, SymbolicMemory, Value, folded, moved

NBYTES = 24
VALUES = [Value(((rank, 0, 0),), 0) for rank in range(3)]

writes = st.lists(
    st.tuples(
        st.integers(0, NBYTES - 1),
        st.integers(1, NBYTES),
        st.one_of(st.none(), st.tuples(st.sampled_from(VALUES), st.integers(-2, 2))),
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None, database=None)
@given(writes, st.integers(0, NBYTES), st.integers(0, NBYTES))
def test_memory_equals_an_array(
    steps: list[tuple[int, int, Content]], begin: int, end: int
) -> None:
    memory = SymbolicMemory(NBYTES, (VALUES[0], 0))
    array: list[Content] = [(VALUES[0], 0)] * NBYTES
    for at, length, content in steps:
        until = min(at + length, NBYTES)
        memory.write(at, until, content)
        array[at:until] = [content] * (until - at)
    begin, end = min(begin, end), max(begin, end)
    read = memory.read(begin, end)
    assert [content for b, e, content in read for _ in range(b, e)] == array[begin:end]
    contents = [content for _, _, content in read]
    assert all(a != b for a, b in pairwise(contents))


def test_clear_forgets_everything() -> None:
    memory = SymbolicMemory(8, (VALUES[0], 0))
    memory.write(2, 4, (VALUES[1], 0))
    memory.clear()
    assert memory.read(0, 8) == [(0, 8, None)]


def test_moving_keeps_what_a_byte_means() -> None:
    assert moved((VALUES[0], 0), 10) == (VALUES[0], -10)
    assert moved(None, 10) is None


def test_folding_keeps_the_order_of_ranks() -> None:
    content = folded([(VALUES[2], 5), (VALUES[0], 5)])
    assert content == (Value(((2, 0, 0), (0, 0, 0)), 1), 5)
    assert str(content[0]) == "fold(rank 2 block 0 + rank 0 block 0)"


def test_folding_different_places_is_not_the_same_as_folding_one_place() -> None:
    content = folded([(VALUES[0], 5), (VALUES[1], 6)])
    assert content == (Value(((0, 0, 0), (1, 0, 1)), 1), 5)


def test_folding_nothing_gives_nothing() -> None:
    assert folded([(VALUES[0], 0), None]) is None


def test_long_values_are_shortened() -> None:
    value = Value(tuple((rank, 0, 0) for rank in range(9)), 1)
    assert (
        str(value)
        == "fold(rank 0 block 0 + rank 1 block 0 + rank 2 block 0 + ... + rank 8 block 0)"
    )
