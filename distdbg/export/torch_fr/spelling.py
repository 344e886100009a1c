"""What torch's flight recorder calls a kind, a dtype and the sizes of a call. Pure.

    to_call(form, "all_gather")     Call(name="all_gather", inputs=[[4]], outputs=[[16]], ..)

torch's analyzer compares the sizes that two ranks have of one collective, literally. So what may differ
between ranks of a good call must not be there: the blocks of an all_to_all are one size, a list of blocks
and one array of all of them look alike, and where blocks are legally uneven both sizes are the list of
blocks, which is the same on all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from distdbg.record.forms import Form, Listing, Shape

#: The kinds that torch has a name for, but for messages; theirs names both ends.
COLLECTIVES: Final = frozenset(
    (
        "broadcast", "all_reduce", "reduce", "all_gather", "gather", "scatter", "reduce_scatter",
        "all_to_all", "barrier",
    )
)  # fmt: skip

_DTYPES: Final = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "bool": "Bool",
    "bytes": "Byte",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
    "float8_e4m3fn": "Float8_e4m3fn",
    "float8_e5m2": "Float8_e5m2",
}
_UNKNOWN_DTYPE: Final = "Undefined"

Sizes = list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """The part of an entry that calls of one form share."""

    name: str
    """Without the backend: 'all_gather_v'."""
    inputs: Sizes
    outputs: Sizes
    dtype: str
    extras: dict[str, object]
    """Keys that torch does not write; its analyzer passes over them, ours reads them."""


def to_call(form: Form, kind: str) -> CallForm:
    """What torch would write of a call of this form."""
    inputs, outputs = _sizes(form.inputs), _sizes(form.outputs)
    name = kind
    match kind:
        case "broadcast" | "all_reduce" | "reduce":  # in place
            inputs = outputs = inputs or outputs
        case "all_gather":
            if _is_even(form.outputs):
                inputs, outputs = inputs or [[0]], [[_count(form.outputs)]]
            else:
                name, inputs = "all_gather_v", outputs
        case "reduce_scatter":
            if _is_even(form.inputs):
                inputs, outputs = [[_count(form.inputs)]], outputs or [[0]]
            else:
                name, outputs = "reduce_scatter_v", inputs
        case "all_to_all":
            inputs, outputs = [[_count(form.inputs)]], [[_count(form.outputs)]]
        case "gather":
            outputs = [[_count(form.outputs)]] if outputs else []
        case "scatter":
            inputs = [[_count(form.inputs)]] if inputs else []
        case _:  # a barrier has none, a message one
            pass
    dtype = _DTYPES.get(form.dtype, form.dtype) or _UNKNOWN_DTYPE
    return CallForm(name=name, inputs=inputs, outputs=outputs, dtype=dtype, extras=_extras(form))


def _sizes(shapes: Listing[Shape]) -> Sizes:
    return [list(shape) for shape in shapes.items]


def _is_even(blocks: Listing[Shape]) -> bool:
    return len({prod(shape) for shape in blocks.items}) < 2


def _count(shapes: Listing[Shape]) -> int:
    """How many elements; of a list that was cut, as if its rest were like its head."""
    count = sum(prod(shape) for shape in shapes.items)
    return count * shapes.count // len(shapes.items) if shapes.hash and shapes.items else count


def _extras(form: Form) -> dict[str, object]:
    extras: dict[str, object] = {"called": form.name} if form.name else {}
    if form.op:
        extras["reduce_op"] = form.op
    if form.root is not None:
        extras["root"] = form.root
    for key, splits in (("input_splits", form.input_splits), ("output_splits", form.output_splits)):
        if splits.count:
            extras[key] = list(splits.items)
    return extras
