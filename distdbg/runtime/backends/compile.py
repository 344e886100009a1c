"""From a Call on this rank's arrays to a native plan, and to the key that says when to reuse it.

Pure: arrays are seen only through `View.nbytes`, `.shape` and `.dtype`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from distdbg.runtime.call import Call, Kind
from distdbg.runtime.dtypes import Dtype
from distdbg.runtime.plan import Problem, Space, Topology, make_plan
from distdbg.runtime.plan.in_place import plan_in_place
from distdbg.runtime.plan.steps import Plan, Step


class ViewLike(Protocol):
    """The part of a native View that planning needs."""

    @property
    def nbytes(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> int: ...


#: view index, offset in bytes, nbytes
Cut = tuple[int, int, int]

_CUT_INPUT = frozenset({Kind.SCATTER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL})
_CUT_OUTPUT = frozenset({Kind.ALL_GATHER, Kind.GATHER, Kind.ALL_TO_ALL})


def cut_blocks(
    views: Sequence[ViewLike], splits: Sequence[int] | None, size: int, is_cut: bool
) -> list[Cut]:
    """Where each block lies: one per view, or the parts of one flat view."""
    if not is_cut or len(views) != 1 or size == 1:
        return [(index, 0, view.nbytes) for index, view in enumerate(views)]
    view = views[0]
    if splits is None:
        block = view.nbytes // size
        return [(0, peer * block, block) for peer in range(size)]
    row = view.nbytes // view.shape[0] if view.shape[0] else 0
    cuts: list[Cut] = []
    offset = 0
    for rows in splits:
        cuts.append((0, offset, rows * row))
        offset += rows * row
    return cuts


#: kind, peer, then space, block and offset of source and destination, then nbytes.
StepTuple = tuple[int, int, int, int, int, int, int, int, int]


def step_tuple(step: Step) -> StepTuple:
    """The order of the fields in native/bindings/group_py.cpp."""
    return (
        int(step.kind),
        step.peer,
        int(step.src),
        step.src_block,
        step.src_offset,
        int(step.dst),
        step.dst_block,
        step.dst_offset,
        step.nbytes,
    )


def plan_for(
    call: Call,
    dtype: int,
    in_cuts: Sequence[Cut],
    out_cuts: Sequence[Cut],
    rank: int,
    size: int,
    topology: Topology,
) -> Plan:
    """The plan of this rank for the call."""
    return make_plan(_problem(call, dtype, in_cuts, out_cuts, rank, size), topology)


def in_place_for(
    call: Call,
    dtype: int,
    in_cuts: Sequence[Cut],
    out_cuts: Sequence[Cut],
    rank: int,
    size: int,
    topology: Topology,
) -> tuple[list[StepTuple], bool, bool]:
    """The way of this rank in shared arrays: its steps, none where there is no such way; what it exposes."""
    plan = plan_in_place(_problem(call, dtype, in_cuts, out_cuts, rank, size), topology)
    if plan is None:
        return [], False, False
    exposes = plan.exposes
    return [step_tuple(s) for s in plan.steps], Space.INPUT in exposes, Space.OUTPUT in exposes


def _problem(
    call: Call,
    dtype: int,
    in_cuts: Sequence[Cut],
    out_cuts: Sequence[Cut],
    rank: int,
    size: int,
) -> Problem:
    return Problem(
        kind=call.kind,
        rank=rank,
        size=size,
        root=call.root,
        itemsize=Dtype(dtype).itemsize if dtype >= 0 else 1,
        in_nbytes=tuple(nbytes for _, _, nbytes in in_cuts),
        out_nbytes=tuple(nbytes for _, _, nbytes in out_cuts),
    )


def is_input_cut(kind: Kind) -> bool:
    """Whether one flat input stands for a block per rank."""
    return kind in _CUT_INPUT


def is_output_cut(kind: Kind) -> bool:
    """Whether one flat output stands for a block per rank."""
    return kind in _CUT_OUTPUT
