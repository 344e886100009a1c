"""The ops of a timeline as they come in pieces: in order, bounded, with what was not told."""

from __future__ import annotations

from typing import Any

import pytest

from distdbg.client.feed.bars import BarStore
from distdbg.record.format import Flag


def columns(
    numbers: list[int], *, took: int = 300, at_ns: int = 10**9, **more: Any
) -> dict[str, Any]:
    count = len(numbers)
    usual: dict[str, Any] = {
        "at_ns": at_ns,
        "groups": ["0"],
        "kinds": ["all_reduce"],
        "number": numbers,
        "group": [0] * count,
        "kind": [0] * count,
        "seq": numbers,
        "peer": [-1] * count,
        "flags": [0] * count,
        "issued": [1000 * number for number in numbers],
        "started": [1000 * number + 100 for number in numbers],
        "ended": [1000 * number + took if took > 0 else -1 for number in numbers],
        "status": [0 if took > 0 else -1] * count,
        "skipped": 0,
    }
    return usual | more


def test_what_comes_in_pieces_is_one_row_of_bars() -> None:
    store = BarStore()
    store.add(0, columns([1, 2, 3]), 0)
    store.add(0, columns([4, 5]), 0)
    bars = store.get(0, 0, 10)
    assert [bar.name for bar in bars] == [f"all_reduce #{n}" for n in range(1, 6)]
    assert (bars[0].issued, bars[0].started, bars[0].ended) == (1.000001, 1.0000011, 1.0000013)
    assert [bar.seq for bar in store.get(0, 1.0000022, 1.0000041)] == [2, 3, 4]
    assert store.get(1, 0, 10) == []


def test_an_op_that_ends_later_is_the_same_bar() -> None:
    store = BarStore()
    store.add(0, columns([1, 2], took=-1), 0)
    assert [bar.ended for bar in store.get(0, 5, 10)] == [None, None]
    store.add(0, columns([1, 3], status=[2, 0]), 0)
    bars = store.get(0, 0, 10)
    assert [bar.number for bar in bars] == [1, 2, 3]
    assert [bar.ended is None for bar in bars] == [False, True, False]
    assert [bar.has_failed for bar in bars] == [True, False, False]


def test_one_that_began_long_before_is_there_as_long_as_it_has_not_ended() -> None:
    store = BarStore()
    store.add(0, columns([1], took=-1), 0)
    store.add(0, columns(list(range(2, 300))), 0)
    assert [bar.number for bar in store.get(0, 1.000299, 10)] == [1, 299]


def test_what_was_not_told_is_one_bar_that_says_how_many() -> None:
    store = BarStore()
    store.add(0, columns([1, 2]), 0)
    store.add(0, columns([50, 51], skipped=47), 0)
    bars = store.get(0, 0, 10)
    assert [bar.name for bar in bars][2] == "47 more ops"
    assert (bars[2].kind, bars[2].number) == ("", 0)
    assert bars[1].ended == bars[2].issued
    assert bars[2].ended == bars[3].issued
    assert len(store.get(0, 0, 1.0000025)) == 3
    assert len(store.get(0, 0, 1.0000015)) == 1


def test_no_more_is_kept_than_there_is_room_for() -> None:
    store = BarStore(most=100)
    for begin in range(1, 2000, 50):
        store.add(0, columns(list(range(begin, begin + 50))), 0)
    kept = store.get(0, 0, 10)
    assert 100 <= len(kept) <= 150
    assert kept[-1].number == 2000
    store.forget(0)
    assert store.get(0, 0, 10) == []


def test_messages_say_with_whom_and_times_are_shifted() -> None:
    store = BarStore()
    reported = columns(
        [1, 2], kinds=["send", "recv"], kind=[0, 1], peer=[3, -1], flags=[Flag.MESSAGE] * 2
    )
    assert store.add(0, reported, 5 * 10**9) == 2
    bars = store.get(0, 0, 10)
    assert [bar.name for bar in bars] == ["send to 3", "recv from any rank"]
    assert bars[0].issued == pytest.approx(6.000001)


@pytest.mark.parametrize("name", ["kinds", "status", "at_ns", "number"])
def test_garbage_raises_and_changes_nothing(name: str) -> None:
    store = BarStore()
    store.add(0, columns([1]), 0)
    with pytest.raises((ValueError, KeyError, TypeError, IndexError)):
        store.add(0, columns([2]) | {name: []}, 0)
    assert [bar.number for bar in store.get(0, 0, 10)] == [1]
