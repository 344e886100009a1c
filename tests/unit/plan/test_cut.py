"""Cuts cover everything once, on whole elements, within the capacity."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.runtime.plan.cut import cut_rounds, cut_shares, pack_rounds

itemsizes = st.sampled_from([1, 2, 4, 8, 16])
checked = settings(max_examples=200, deadline=None, database=None)


@checked
@given(st.integers(0, 5000), st.integers(1, 70), itemsizes)
def test_shares_cover_everything_in_order(count: int, parts: int, itemsize: int) -> None:
    shares = cut_shares(count * itemsize, parts, itemsize)
    assert len(shares) == parts
    at = 0
    for offset, nbytes in shares:
        assert offset == at
        assert nbytes >= 0 == nbytes % itemsize
        at += nbytes
    assert at == count * itemsize


def test_large_shares_begin_on_cache_lines_and_small_ones_do_not() -> None:
    assert [offset for offset, _ in cut_shares(4000, 3, 4)] == [0, 1344, 2688]
    assert cut_shares(40, 3, 4) == [(0, 16), (16, 16), (32, 8)]


def test_fewer_elements_than_ranks_leave_some_without_a_share() -> None:
    assert cut_shares(8, 4, 4) == [(0, 4), (4, 4), (8, 0), (8, 0)]


@checked
@given(st.integers(0, 5000), st.integers(64, 3000), itemsizes)
def test_rounds_cover_everything_within_the_capacity(
    count: int, capacity: int, itemsize: int
) -> None:
    nbytes = count * itemsize
    rounds = cut_rounds(nbytes, capacity, itemsize)
    assert sum(length for _, length in rounds) == nbytes
    assert [offset for offset, _ in rounds] == [
        sum(length for _, length in rounds[:k]) for k in range(len(rounds))
    ]
    assert all(0 < length <= capacity and length % itemsize == 0 for _, length in rounds)


def test_rounds_are_about_equal() -> None:
    assert cut_rounds(1100, 1000, 4) == [(0, 576), (576, 524)]


@checked
@given(st.lists(st.integers(0, 300), min_size=1, max_size=20), st.integers(64, 900), itemsizes)
def test_packed_rounds_hold_every_byte_once(
    counts: list[int], capacity: int, itemsize: int
) -> None:
    blocks = [count * itemsize for count in counts]
    done = [0] * len(blocks)
    for pieces in pack_rounds(blocks, capacity, itemsize):
        at = 0
        for piece in pieces:
            assert piece.slot_offset == at
            assert piece.offset == done[piece.block]
            assert piece.nbytes > 0 == piece.nbytes % itemsize
            done[piece.block] += piece.nbytes
            at += piece.nbytes
        assert 0 < at <= capacity
    assert done == blocks


def test_what_fits_is_one_round() -> None:
    assert len(pack_rounds([10, 0, 90], 100, 1)) == 1
    assert pack_rounds([0, 0], 100, 1) == []


def test_every_block_has_a_part_in_every_round() -> None:
    rounds = pack_rounds([1000] * 4, 1024, 4)
    assert all([piece.block for piece in pieces] == [0, 1, 2, 3] for pieces in rounds)
