"""Batches of rows: what goes in comes out, and nothing but a batch is taken for one."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distdbg.hosts.columns import (
    BLANK,
    SNAP_NS,
    UNIT_NS,
    BadBatch,
    RowColumn,
    decode,
    encode,
    is_reported,
)

#: A machine may be busy.
patient = settings(
    max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)

SCHEMA = (RowColumn.NUMBER, RowColumn.TEXT, RowColumn.TIME, RowColumn.NUMBERS)
NOW = 100 * 10**9

ROWS = st.dictionaries(
    st.integers(0, 400),
    st.tuples(
        st.integers(-(2**40), 2**40),
        st.sampled_from(["", "a", "train.py:88 (step)"]),
        st.integers(0, NOW),
        st.lists(st.integers(0, 2**40), max_size=3).map(tuple),
    ),
    min_size=1,
)


def in_order(rows: dict[int, Any]) -> dict[int, Any]:
    return dict(sorted(rows.items()))


@patient
@given(ROWS, ROWS)
def test_both_ends_have_the_same_rows_after_every_batch(first: Any, second: Any) -> None:
    here: dict[int, Any] = {}
    there: dict[int, Any] = {}
    for step, rows in enumerate((first, second)):
        now_ns = NOW + step * 3 * 10**9
        batch, reported, _ = encode(SCHEMA, in_order(rows), here, now_ns)
        here.update(reported)
        there.update(decode(SCHEMA, json.loads(json.dumps(batch)), there, now_ns))
        assert there == here
        for key, row in rows.items():
            number, text, since_ns, numbers = there[key]
            assert (number, text, numbers) == (row[0], row[1], row[3])
            is_recent = now_ns - row[2] < SNAP_NS
            assert abs(since_ns - row[2]) <= (SNAP_NS if is_recent else UNIT_NS)


@patient
@given(ROWS, ROWS)
def test_times_that_are_news_are_exact(first: Any, second: Any) -> None:
    _, reported, snapped = encode(SCHEMA, in_order(first), {}, NOW, exact=first)
    assert not snapped
    assert all(abs(reported[key][2] - row[2]) <= UNIT_NS for key, row in first.items())
    _, reported, snapped = encode(SCHEMA, in_order(second), reported, NOW, exact=second)
    assert not snapped
    assert all(abs(reported[key][2] - row[2]) <= UNIT_NS for key, row in second.items())


def test_ranks_that_move_alike_are_one_run() -> None:
    before = dict.fromkeys(range(4096), (1041, "x", NOW - 10**9, (7, 1041)))
    after = dict.fromkeys(range(4096), (1042, "x", NOW, (7, 1042)))
    batch, _, _ = encode(SCHEMA, after, before, NOW + 1)
    one = [0, 1, 4096]
    assert batch == [[0, 4096], [], [one, [], one, [], [], one]]


def test_a_time_that_has_just_been_is_told_exactly_later() -> None:
    row = (1, "x", NOW - 300_000_000, ())
    _, reported, snapped = encode(SCHEMA, {0: row}, {}, NOW)
    assert snapped
    assert is_reported(SCHEMA, row, reported[0], NOW)
    assert not is_reported(SCHEMA, row, reported[0], NOW + 10**9)
    _, reported, snapped = encode(SCHEMA, {0: row}, reported, NOW + 10**9)
    assert not snapped
    assert is_reported(SCHEMA, row, reported[0], NOW + 10**9)


GOOD = [[0, 2], ["x"], [[1, 5, 6], [0, 1, 2], [1, 1, 2], []]]


@pytest.mark.parametrize(
    "batch",
    [
        None,
        {},
        [[0, 2], ["x"]],
        [[0], ["x"], GOOD[2]],
        [[], [], []],
        [[0, 1 << 20], ["x"], GOOD[2]],
        [[1 << 30, 2], ["x"], GOOD[2]],
        [[0, -2], ["x"], GOOD[2]],
        [[0, 2.5], ["x"], GOOD[2]],
        [[0, 2], ["x" * 500], GOOD[2]],
        [[0, 2], [5], GOOD[2]],
        [[0, 2], [], GOOD[2]],
        [[0, 2], ["x"], [*GOOD[2][:-1], [0, 1 << 40, 2]]],
        [[0, 2], ["x"], [[1, 5], *GOOD[2][1:]]],
        [[0, 2], ["x"], [[0, 5, 3], *GOOD[2][1:]]],
        [[0, 2], ["x"], [[2, 5, 2], *GOOD[2][1:]]],
        [[0, 2], ["x"], [[1, "5", 6], *GOOD[2][1:]]],
        [[0, 2], ["x"], [[1, 1 << 80, 6], *GOOD[2][1:]]],
        [[0, 2], ["x"], [GOOD[2][0], [0, 2, 2], *GOOD[2][2:]]],
        [[0, 2], ["x"], [*GOOD[2][:2], [], []]],
        [[0, 2], ["x"], [*GOOD[2], []]],
        [[0, 2], ["x"], GOOD[2][:-1]],
    ],
)
def test_what_no_end_would_send_is_refused(batch: object) -> None:
    with pytest.raises(BadBatch):
        decode(SCHEMA, batch, {}, NOW)


def test_the_batch_that_the_bad_ones_are_made_of_is_good() -> None:
    assert decode(SCHEMA, GOOD, {}, NOW) == {
        0: (5, "x", NOW, ()),
        1: (6, "x", NOW, ()),
    }


@patient
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=5),
        max_leaves=30,
    )
)
def test_garbage_is_refused_or_read_but_never_anything_else(batch: object) -> None:
    with contextlib.suppress(BadBatch):
        decode(SCHEMA, batch, {}, NOW)


def test_every_sort_of_column_begins_with_a_value_of_its_own_type() -> None:
    assert [(column, type(BLANK[column])) for column in RowColumn] == [
        (RowColumn.NUMBER, int),
        (RowColumn.TEXT, str),
        (RowColumn.TIME, type(None)),
        (RowColumn.NUMBERS, tuple),
    ]
