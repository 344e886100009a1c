"""The arguments of an op that many ops have in common: looked up once for each combination.

    combos = find_combos(ops)
    combos.index[i]                which combination op i has
    facts_of(session, ops, at)     its facts, by any op that has it

An op has more of its own: seq and how long it waited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from distdbg.diagnose.ops import IN_FLIGHT, NONE
from distdbg.export.trace.slices import kind_label
from distdbg.record.format import Flag, Status
from distdbg.record.forms import Listing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distdbg.diagnose.ops import Ops
    from distdbg.diagnose.session import Session

_COLUMNS: Final = (
    "form", "stack", "kind", "flags", "status", "comm", "peer", "source", "tag", "thread",
)  # fmt: skip
_MAX_KEY: Final = 1 << 62
#: Frames of a stack, and shapes of a list, that are shown.
_MAX_FRAMES: Final = 12
_MAX_ITEMS: Final = 16
_MAX_TEXT: Final = 1_000

Fact = str | int


@dataclass(slots=True)
class Combos:
    """Which ops have all their facts in common."""

    index: NDArray[np.int64]
    examples: list[int]
    """An op of each."""
    keys: list[tuple[int, ...]]
    """What tells them apart, equal on all ranks; () for one that no other op has."""


def find_combos(ops: Ops) -> Combos:
    """Sort ops by what they have in common."""
    columns = [_view(ops, name) for name in _COLUMNS]
    if ops.errors:
        own = np.zeros(len(ops), np.int64)
        own[list(ops.errors)] = np.arange(1, len(ops.errors) + 1)
        columns.append(own)
    key = np.zeros(len(ops), np.int64)
    size = 1
    for column in columns:
        if not len(column) or (column == column[0]).all():
            continue
        values, inverse = np.unique(column, return_inverse=True)
        if size * len(values) > _MAX_KEY:
            known, key = np.unique(key, return_inverse=True)
            size = len(known)
        key = key * len(values) + inverse
        size *= len(values)
    _, first, index = np.unique(key, return_index=True, return_inverse=True)
    examples = first.tolist()
    keys = [
        () if at in ops.errors else tuple(int(column[at]) for column in columns[: len(_COLUMNS)])
        for at in examples
    ]
    return Combos(index, examples, keys)


def _view(ops: Ops, name: str) -> NDArray[np.int64]:
    column = getattr(ops, name)
    return np.frombuffer(column, np.dtype(column.typecode)).astype(np.int64, copy=False)


def name_of(session: Session, ops: Ops, at: int) -> str:
    """'all_reduce', 'all_reduce (timeout)', 'all_gather_into_tensor (did not end)' ..."""
    form = session.forms[ops.form[at]]
    name = form.name or kind_of(session, ops, at)
    return name if ops.status[at] == Status.OK else f"{name} ({_status(ops.status[at])})"


def kind_of(session: Session, ops: Ops, at: int) -> str:
    return kind_label(ops.kind[at], session.forms[ops.form[at]].kind)


def facts_of(session: Session, ops: Ops, at: int) -> dict[str, Fact]:
    """By name; what is not known or empty is not there."""
    form = session.forms[ops.form[at]]
    stack = session.stacks[ops.stack[at]]
    flags = ops.flags[at]
    facts: dict[str, Fact] = {
        "nbytes": form.nbytes,
        "dtype": form.dtype,
        "inputs": _shapes(form.inputs),
        "outputs": _shapes(form.outputs),
        "input_splits": _shapes(form.input_splits),
        "output_splits": _shapes(form.output_splits),
        "reduce_op": form.op,
        "device": form.device,
        "comm": session.comms[ops.comm[at]],
        "site": str(stack[0]) if stack else "",
        "stack": " < ".join(map(str, stack[:_MAX_FRAMES])) if len(stack) > 1 else "",
    }
    facts = {name: value for name, value in facts.items() if value}
    if form.root is not None:
        facts["root"] = form.root
    if form.part is not None:
        facts["part"] = f"{form.part[0]} of {form.part[1]}"
    if flags & Flag.MESSAGE:
        facts["peer"] = "any" if ops.peer[at] == NONE else ops.peer[at]
        if ops.source[at] != NONE:
            facts["source"] = ops.source[at]
        facts["tag"] = ops.tag[at]
    if flags & Flag.ASYNC:
        facts["is_async"] = "yes"
    if flags & Flag.END_NOTICED:
        facts["end"] = "when it was noticed"
    if flags & Flag.END_QUEUED:
        facts["end"] = "when the device had it queued"
    facts["status"] = _status(ops.status[at])
    if error := ops.errors.get(at):
        facts["error"] = error[:_MAX_TEXT]
    facts["thread"] = ops.thread[at]
    return facts


def _status(status: int) -> str:
    if status == IN_FLIGHT:
        return "did not end"
    try:
        return Status(status).name.lower().replace("_", " ")
    except ValueError:
        return f"status {status}"


def _shapes(listing: Listing[int] | Listing[tuple[int, ...]]) -> str:
    """'[1024], [8, 16]'; a long list by its head."""
    shown = ", ".join(
        str(item) if isinstance(item, int) else f"[{', '.join(map(str, item))}]"
        for item in listing.items[:_MAX_ITEMS]
    )
    left = max(listing.count, len(listing.items)) - min(len(listing.items), _MAX_ITEMS)
    return f"{shown} and {left:,} more" if left and shown else shown
