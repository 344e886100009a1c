"""Makes a native plan of a Call on this rank's arrays, and the key that says when to reuse it.

Pure: arrays are seen only through `View.nbytes`, `.shape` and `.dtype`.
"""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.ops.call import Call, Kind
from distdbg.ops.cuts import Cut
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.plan import Problem, Space, Topology, make_plan
from distdbg.runtime.plan.gloo_order import (
    GlooOrder,
    order_of_all_reduce,
    order_of_reduce,
    order_of_reduce_scatter,
)
from distdbg.runtime.plan.in_place import plan_in_place
from distdbg.runtime.plan.steps import Plan, Step

#: kind, peer, then space, block and offset of source and destination, then nbytes and first.
StepTuple = tuple[int, int, int, int, int, int, int, int, int, int]


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
        step.first,
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
    return make_plan(problem_of(call, dtype, in_cuts, out_cuts, rank, size), topology)


def in_place_for(problem: Problem, topology: Topology) -> tuple[list[StepTuple], bool, bool]:
    """The way of this rank in shared arrays: its steps, none where there is no such way; what it exposes."""
    plan = plan_in_place(problem, topology)
    if plan is None:
        return [], False, False
    exposes = plan.exposes
    return [step_tuple(s) for s in plan.steps], Space.INPUT in exposes, Space.OUTPUT in exposes


def problem_of(
    call: Call,
    dtype: int,
    in_cuts: Sequence[Cut],
    out_cuts: Sequence[Cut],
    rank: int,
    size: int,
) -> Problem:
    itemsize = Dtype(dtype).itemsize if dtype >= 0 else 1
    in_nbytes = tuple(nbytes for _, _, nbytes in in_cuts)
    return Problem(
        kind=call.kind,
        rank=rank,
        size=size,
        root=call.root,
        itemsize=itemsize,
        in_nbytes=in_nbytes,
        out_nbytes=tuple(nbytes for _, _, nbytes in out_cuts),
        order=_order(call, in_nbytes, size, itemsize) if call.adds_as_gloo(dtype) else None,
    )


def _order(call: Call, in_nbytes: tuple[int, ...], size: int, itemsize: int) -> GlooOrder:
    if call.kind is Kind.REDUCE_SCATTER:
        return order_of_reduce_scatter(in_nbytes, itemsize, is_list=len(call.inputs) > 1)
    if call.kind is Kind.REDUCE:
        return order_of_reduce(in_nbytes[0], size, itemsize)
    begin, total = call.ring or (0, in_nbytes[0])
    return order_of_all_reduce(total, size, itemsize, begin)
