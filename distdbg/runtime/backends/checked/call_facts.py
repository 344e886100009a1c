"""What the ranks of another backend must agree on before an op, from its arrays."""

from __future__ import annotations

from typing import Any

from distdbg.check.signature import signature
from distdbg.ops.call import Call, Kind
from distdbg.ops.cuts import cut_blocks, is_input_cut, is_output_cut
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.backends.checked.array_facts import ArrayFacts


def call_facts(
    call: Call, size: int, reads_strides: bool
) -> tuple[dict[str, Any], list[int] | None, list[int] | None]:
    """The facts; then, for an exchange, the elements to and from each rank.

    `reads_strides`: the backend reads arrays in the order of their elements, so that order may differ.
    """
    inputs = [ArrayFacts(array) for array in call.inputs]
    outputs = [ArrayFacts(array) for array in call.outputs]
    kind = call.kind
    in_cuts = cut_blocks(inputs, call.input_splits, size, is_input_cut(kind))
    out_cuts = cut_blocks(outputs, call.output_splits, size, is_output_cut(kind))
    facts = signature(call, inputs, outputs, in_cuts, out_cuts)
    arrays = inputs or outputs
    if arrays and kind is not Kind.BARRIER:
        facts["dtype"] = arrays[0].label
        facts["device"] = arrays[0].device
        if arrays[0].order is not None and not reads_strides:
            facts["order"] = list(arrays[0].order)
    if kind is not Kind.ALL_TO_ALL:
        return facts, None, None
    itemsize = Dtype(arrays[0].dtype).itemsize if arrays and arrays[0].dtype >= 0 else 1
    return (
        facts,
        [nbytes // itemsize for _, _, nbytes in in_cuts],
        [nbytes // itemsize for _, _, nbytes in out_cuts],
    )
