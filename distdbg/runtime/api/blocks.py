"""Coalesced blocks: several ops issued as one, which must be the same on all ranks.

Each op of a block carries the contents of the whole block, so a difference anywhere in it is found at its
first op, before any data was copied. All ranks then drop the rest of the block (see
native/core/runner.cpp), so they are at the same op again, though their blocks had different lengths.

A block of one op is that op.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from distdbg.check.show import content_text
from distdbg.check.signature import signature
from distdbg.ops.call import GOES_ON, PLACE_SHIFT, BlockPart, Call, Kind
from distdbg.ops.cuts import cut_blocks, is_input_cut, is_output_cut
from distdbg.runtime.arrays.buffers import input_of

#: A program that never repeats a block must not grow without bound.
_LIMIT = 256


class CoalescedBlocks:
    """The blocks that one group has seen: what they hold in words costs more than running them."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, tuple[BlockPart, ...]]] = {}
        self._next = 1

    def mark(self, calls: Sequence[Call], size: int) -> None:
        """Make these Calls, not yet started, the parts of one block."""
        if len(calls) < 2 or calls[0].kind >= Kind.SEND:
            return
        key = tuple(_key(call) for call in calls)
        known = self._known.get(key)
        if known is None:
            contents = tuple(content_text(_facts(call, size)) for call in calls)
            known = self._next, tuple(BlockPart(index, contents) for index in range(len(calls)))
            self._next += len(calls)
            if len(self._known) >= _LIMIT:
                self._known.clear()
            self._known[key] = known
        number, parts = known
        for index, (call, part) in enumerate(zip(calls, parts, strict=True)):
            call.part = part
            call.add_extra((number + index) << PLACE_SHIFT | (GOES_ON if index else 0))


def _key(call: Call) -> Hashable:
    """What decides the words for a call."""
    arrays = (*call.inputs, None, *call.outputs)
    return (
        call.kind,
        None if call.op is None else call.op.code,
        call.root,
        call.extra,
        call.input_splits and tuple(call.input_splits),
        call.output_splits and tuple(call.output_splits),
        tuple([x is None or _array_key(x) for x in arrays]),
    )


def _array_key(x: Any) -> Hashable:
    try:
        return tuple(x.shape), x.dtype  # without looking at its memory
    except AttributeError:
        view = input_of(x)
        return view.shape, view.dtype


def _facts(call: Call, size: int) -> dict[str, object]:
    inputs = [input_of(x) for x in call.inputs]
    outputs = [input_of(x) for x in call.outputs]
    in_cuts = cut_blocks(inputs, call.input_splits, size, is_input_cut(call.kind))
    out_cuts = cut_blocks(outputs, call.output_splits, size, is_output_cut(call.kind))
    return signature(call, inputs, outputs, in_cuts, out_cuts)
