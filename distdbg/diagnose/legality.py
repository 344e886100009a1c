"""Tells whether calls of different ranks can be one op, by their forms alone. Pure.

Only what is known on both sides and is illegal for the kind counts; unknown is never a difference:

    kind, dtype      must be equal (a barrier has no dtype)
    op               of all_reduce, reduce, reduce_scatter
    root             of broadcast, reduce, gather, scatter
    elements         all_reduce, broadcast, reduce: of one rank's array. Its shape may differ where
                     nobody has checked it: libraries see only the count
                     all_gather: of all outputs, reduce_scatter: of all inputs, so that blocks of
                     different sizes are legal
                     gather, scatter: not compared; only the root has the lists
    splits           all_to_all: what rank i sends rank j is what j expects from i (`split_pairs`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final, NamedTuple

from distdbg.record.forms import Form, Listing, Shape

#: Aspects in the order in which differences are told.
ASPECTS: Final = ("kind", "dtype", "elements", "op", "root")
Facts = Mapping[str, object]

_REDUCED: Final = frozenset(("all_reduce", "reduce", "reduce_scatter"))
_ROOTED: Final = frozenset(("broadcast", "reduce", "gather", "scatter"))
_ONE_ARRAY: Final = frozenset(("all_reduce", "broadcast", "reduce"))


class SplitMismatch(NamedTuple):
    """Two ranks of an all_to_all that do not agree."""

    sender: int
    receiver: int
    sends: int
    expects: int


def facts_of(kind: str, form: Form) -> dict[str, object]:
    """What is known of a call and must be equal on all ranks."""
    facts: dict[str, object] = {}
    if kind and kind != "an op":
        facts["kind"] = kind
    if form.dtype and kind != "barrier" and not form.is_cut:
        facts["dtype"] = form.dtype
    if form.op and kind in _REDUCED and not form.is_cut:
        facts["op"] = "PREMUL_SUM" if form.op.upper().startswith("PREMUL_SUM") else form.op
    if form.root is not None and kind in _ROOTED:
        facts["root"] = form.root
    count = _elements(kind, form)
    if count is not None:
        facts["elements"] = count
    return facts


def differing(one: Facts, other: Facts) -> list[str]:
    """The aspects that are known of both and differ; after another kind nothing else counts."""
    found = [name for name in ASPECTS if name in one and name in other and one[name] != other[name]]
    return ["kind"] if "kind" in found else found


def like_array_of(kind: str, form: Form) -> Listing[Shape] | None:
    """The array of a rank where all ranks give one of as many elements; None: another kind, or not known."""
    if kind not in _ONE_ARRAY or form.is_cut:
        return None
    return next((one for one in (form.inputs, form.outputs) if one.items and not one.hash), None)


def _elements(kind: str, form: Form) -> int | None:
    if kind in _ONE_ARRAY:
        inputs, outputs = _count(form.inputs), _count(form.outputs)
        return inputs if inputs is not None else outputs
    if kind == "all_gather":
        return _count(form.outputs)
    if kind == "reduce_scatter":
        return _count(form.inputs)
    return None


def _count(shapes: Listing[Shape]) -> int | None:
    """How many elements in all; None: not known."""
    if shapes.hash or not shapes.items:
        return None
    return sum(prod(shape) for shape in shapes.items)


def split_pairs(
    forms: Mapping[int, Form], members: Sequence[int], most: int = 64
) -> list[SplitMismatch]:
    """The pairs of an all_to_all whose sizes do not meet; `forms` by rank, of those that are known."""
    size = len(members)
    sends = {rank: _parts(form.input_splits, form.inputs, size) for rank, form in forms.items()}
    expects = {rank: _parts(form.output_splits, form.outputs, size) for rank, form in forms.items()}
    pairs = []
    for i, sender in enumerate(members):
        given = sends.get(sender)
        if given is None:
            continue
        for j, receiver in enumerate(members):
            wanted = expects.get(receiver)
            if wanted is not None and given[j] != wanted[i]:
                pairs.append(SplitMismatch(sender, receiver, given[j], wanted[i]))
                if len(pairs) == most:
                    return pairs
    return pairs


def _parts(splits: Listing[int], shapes: Listing[Shape], size: int) -> list[int] | None:
    """The elements for or from each member; None where they are not known."""
    if splits.hash or shapes.hash or not shapes.items or not size:
        return None
    if len(shapes.items) == size and (size > 1 or not splits.items):
        return [prod(shape) for shape in shapes.items]
    if len(shapes.items) != 1:
        return None
    first, *rest = shapes.items[0] or (1,)
    if splits.items:
        if len(splits.items) != size or sum(splits.items) != first:
            return None
        return [rows * prod(rest) for rows in splits.items]
    return [first // size * prod(rest)] * size if first % size == 0 else None
