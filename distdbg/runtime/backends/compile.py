"""From a Call on this rank's arrays to a native plan, and to the key that says when to reuse it.

Pure: arrays are seen only through `View.nbytes`, `.shape` and `.dtype`. The signature is what must
be equal on all ranks for the op to be legal; its hash is the fingerprint that meets at the first gate.
What legally differs between ranks (the splits of an uneven all_to_all) is not in it: native code
compares those, row against column, from the published block sizes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Protocol

from distdbg.runtime.call import Call, Kind
from distdbg.runtime.dtypes import Dtype
from distdbg.runtime.plan import Problem, Topology, make_plan
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


def signature(
    call: Call,
    inputs: Sequence[ViewLike],
    outputs: Sequence[ViewLike],
    in_cuts: Sequence[Cut],
    out_cuts: Sequence[Cut],
) -> dict[str, Any]:
    """What all ranks must agree on, by the names that errors use."""
    kind = call.kind
    facts: dict[str, Any] = {"kind": kind.label}
    if kind is Kind.BARRIER:
        return facts
    views = [*inputs, *outputs]
    dtype = views[0].dtype if views else -1
    itemsize = Dtype(dtype).itemsize if dtype >= 0 else 1
    facts["dtype"] = Dtype(dtype).label if dtype >= 0 else "bytes"
    if call.op is not None:
        facts["op"] = call.op.op.name
    if call.root >= 0:
        facts["root"] = call.root
    if kind is Kind.ALL_GATHER:
        facts["counts"] = [nbytes // itemsize for _, _, nbytes in out_cuts]
    elif kind is Kind.REDUCE_SCATTER:
        facts["counts"] = [nbytes // itemsize for _, _, nbytes in in_cuts]
    elif kind is Kind.SCATTER:
        facts["shape"] = list(outputs[0].shape)
    elif kind is not Kind.ALL_TO_ALL:
        facts["shape"] = list(views[0].shape)
    return facts


def fingerprint(facts: dict[str, Any]) -> int:
    """64 bits that differ, for all practical purposes, when the facts do."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


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
    return make_plan(
        Problem(
            kind=call.kind,
            rank=rank,
            size=size,
            root=call.root,
            itemsize=Dtype(dtype).itemsize if dtype >= 0 else 1,
            in_nbytes=tuple(nbytes for _, _, nbytes in in_cuts),
            out_nbytes=tuple(nbytes for _, _, nbytes in out_cuts),
        ),
        topology,
    )


def is_input_cut(kind: Kind) -> bool:
    """Whether one flat input stands for a block per rank."""
    return kind in _CUT_INPUT


def is_output_cut(kind: Kind) -> bool:
    """Whether one flat output stands for a block per rank."""
    return kind in _CUT_OUTPUT
