"""Calls of one op by several ranks in the words of a mismatch: who called what where, and what differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import known_ns, say_op, say_ranks, site_of
from distdbg.record.forms import Listing, Shape

MOST_SIDES: Final = 4


def call_lines(
    session: Session, calls: Sequence[OpRef], most: int = MOST_SIDES
) -> Iterator[Evidence]:
    """Who called what where, ranks with one line together."""
    places: dict[tuple[str, str], list[OpRef]] = defaultdict(list)
    for op in calls:
        places[say_op(session, op), site_of(session, op)].append(op)
    for (text, site), ops in list(places.items())[:most]:
        ranks = [op.rank for op in ops]
        yield Evidence(
            text=f"{say_ranks(ranks)} called {text}",
            rank=ranks[0],
            ranks=tuple(ranks),
            op=ops[0],
            site=site,
            at_ns=first_issue(session, {op.rank: op for op in ops}, ranks),
        )
    if len(places) > most:
        yield Evidence(text=f"and {len(places) - most} more lines")


def first_issue(session: Session, calls: Mapping[int, OpRef], ranks: Sequence[int]) -> int | None:
    times = [
        session.time_ns(rank, session.ranks[rank].ops.issued_ns[calls[rank].at]) for rank in ranks
    ]
    return known_ns(min(times))


def show_call(session: Session, op: OpRef, aspects: set[str]) -> str:
    """Only what differs: 'broadcast float32[4]', 'float32[1023]', 'op MAX', 'root 1'."""
    ops = session.ranks[op.rank].ops
    form = session.forms[ops.form[op.at]]
    array = _show_array(form.dtype, form.inputs if form.inputs.items else form.outputs)
    if "kind" in aspects:
        return f"{session.kind_of(op)} {array}".strip()
    words = []
    if aspects & {"dtype", "elements", "shape"} and array:
        words.append(array)
    if "op" in aspects:
        words.append(f"op {form.op}")
    if "root" in aspects:
        words.append(f"root {form.root}")
    return " ".join(words) or f"{form.name or session.kind_of(op)} {array}".strip()


def _show_array(dtype: str, shapes: Listing[Shape]) -> str:
    if not shapes.items:
        return dtype
    text = f"{dtype}[{','.join(map(str, shapes.items[0]))}]"
    return text if shapes.count == 1 else f"{shapes.count} of {text}"
