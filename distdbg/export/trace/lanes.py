"""Lanes: slices of one track may not overlap, so what overlaps gets tracks beside each other. Pure.

    ops       |--a--|     |---c---|
                 |--b--|                 lane of a: 0, of b: 1, of c: 0
    nested    |---outer---|
                 |-inner-|               spans: both 0, one stands on the other

A lane is free again when its last slice has ended before: at the same time is too late, as who reads a trace
may take the begin first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The end of what never ended.
OPEN: Final = 2**63 - 1


def find_lanes(
    begins: NDArray[np.int64], ends: NDArray[np.int64], tracks: NDArray[np.int32]
) -> NDArray[np.int32]:
    """The lane of each slice among those of its track."""
    lanes = np.zeros(len(begins), np.int32)
    order = np.lexsort((begins, tracks))
    sorted_tracks = tracks[order]
    edges = np.flatnonzero(np.diff(sorted_tracks)) + 1
    for mine in np.split(order, edges):
        if len(mine) < 2:
            continue
        highest = np.maximum.accumulate(ends[mine])
        if bool((begins[mine][1:] > highest[:-1]).all()):
            continue
        lanes[mine] = _share_out(begins[mine].tolist(), ends[mine].tolist())
    return lanes


def _share_out(begins: Sequence[int], ends: Sequence[int]) -> list[int]:
    """By begin; the lowest free lane."""
    lanes = []
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    count = 0
    for begin, end in zip(begins, ends, strict=True):
        while busy and busy[0][0] < begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        heapq.heappush(busy, (end, lane))
        lanes.append(lane)
    return lanes


def find_nested_lanes(spans: Sequence[tuple[int, int]]) -> list[int]:
    """The lane of each span (begin, end), in the order of their begins; one may stand within another."""
    stacks: list[list[int]] = []
    lanes = []
    for begin, end in spans:
        for lane, stack in enumerate(stacks):  # noqa: B007 - the first that fits
            while stack and stack[-1] < begin:
                stack.pop()
            if not stack or end <= stack[-1]:
                break
        else:
            lane = len(stacks)
            stacks.append([])
        stacks[lane].append(end)
        lanes.append(lane)
    return lanes
