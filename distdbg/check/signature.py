"""The facts of a call that must be equal on all ranks, and their fingerprint.

Pure: arrays are seen only through `View.shape` and `.dtype` and the cuts. The signature is what
must be equal on all ranks for the op to be legal; its hash is the fingerprint that meets at the first
gate. Compared are:

    kind, form    all_gather_object is no all_gather, though it is made of two of them
    block, part   the contents of a coalesced block, and which of them this op is
    dtype         float16 is no bfloat16, bool no uint8
    shape         of one rank's array. No dimensions count as one of one element: there is one order
                  of one element, and reading a loss with or without keepdim is no bug. [4] against
                  [2,2] is: the same elements would be taken for others.
    counts        instead, where all_gather and reduce_scatter have blocks of different sizes; each
                  rank's own array then has a shape of its own, and only the counts can be alike
    input         the shape of the one array that a reduce_scatter cuts, unless it is the blocks of
                  the output's shape one after the other (then list and array forms mix)
    op            PREMUL_SUM is no SUM
    factor        of PREMUL_SUM, as Python writes it
    sums          as gloo, where all ranks are to add up in its order; or with the block as one array
    root          where there is one
    dst, gather_dim   of functional collectives, which no array shows

Not compared, because they legally differ: who brings outputs (only the root of reduce, gather and
scatter has lists, which it has compared with its own array), strides, the library of the arrays,
async_op, timeouts. The splits of all_to_all are compared by native code, row against column, from the
published block sizes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from distdbg.ops.call import Call, Kind, Variant
from distdbg.ops.cuts import Cut, ViewLike
from distdbg.ops.dtypes import Dtype


def signature(
    call: Call,
    inputs: Sequence[ViewLike],
    outputs: Sequence[ViewLike],
    in_cuts: Sequence[Cut],
    out_cuts: Sequence[Cut],
) -> dict[str, Any]:
    """What all ranks must agree on, by the names that errors use."""
    kind, variant = call.kind, call.variant
    facts: dict[str, Any] = {"kind": kind.label}
    if variant.is_another_function:
        facts["form"] = variant.label
    if call.part is not None:
        facts["part"] = call.part.place
        facts["block"] = list(call.part.contents)
    if call.agreed is not None:
        facts |= call.agreed
    if kind is Kind.BARRIER:
        return facts
    views = [*inputs, *outputs]
    dtype = views[0].dtype if views else -1
    itemsize = Dtype(dtype).itemsize if dtype >= 0 else 1
    facts["dtype"] = Dtype(dtype).label if dtype >= 0 else "bytes"
    if call.op is not None:
        facts["op"] = "PREMUL_SUM" if variant is Variant.PREMUL_SUM else call.op.op.name
    if call.adds_as_gloo(dtype):
        facts["sums"] = "as gloo" if call.ring is None else "as gloo, block as one"
    if call.root >= 0:
        facts["root"] = call.root
    if kind is Kind.ALL_GATHER:
        facts |= _sizes(out_cuts, itemsize, inputs[0])
    elif kind is Kind.REDUCE_SCATTER:
        own = outputs[0]
        facts |= _sizes(in_cuts, itemsize, own)
        if len(inputs) == 1 < len(in_cuts) and not _is_stack(inputs[0], own, len(in_cuts)):
            facts["input"] = list(inputs[0].shape)
    elif kind is Kind.SCATTER:
        facts["shape"] = _shape(outputs[0])
    elif (
        kind is Kind.BROADCAST and variant is Variant.BROADCAST_OBJECT_LIST and dtype == Dtype.int64
    ):
        # The sizes of the objects, one number for each: what is alike is how many there are.
        del facts["dtype"]
        facts["objects"] = views[0].shape[0]
    elif kind is not Kind.ALL_TO_ALL:
        facts["shape"] = _shape(views[0])
    return facts


def _sizes(cuts: Sequence[Cut], itemsize: int, own: ViewLike) -> dict[str, list[int]]:
    counts = [nbytes // itemsize for _, _, nbytes in cuts]
    return {"shape": _shape(own)} if len(set(counts)) <= 1 else {"counts": counts}


def _shape(view: ViewLike) -> list[int]:
    return list(view.shape) or [1]


def _is_stack(view: ViewLike, block: ViewLike, size: int) -> bool:
    """Whether a view is `size` blocks, along the first dimension or one before it."""
    first, *rest = _shape(block)
    return list(view.shape) in ([size * first, *rest], [size, first, *rest])


def fingerprint(facts: dict[str, Any]) -> int:
    """64 bits that differ, for all practical purposes, when the facts do."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
