"""Calls of one op by several ranks in the words of a mismatch: who called what where, and what differs."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from distdbg.check.show import show_sums
from distdbg.diagnose.comparing import Comparer
from distdbg.diagnose.failures import Failure
from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait, traits_of
from distdbg.diagnose.wording import known_ns, say_op, say_ranks, site_of
from distdbg.record.format import Flag
from distdbg.record.forms import Listing, Shape

MAX_SIDES: Final = 4


def call_lines(
    session: Session, calls: Sequence[OpRef], most: int = MAX_SIDES
) -> Iterator[Evidence]:
    """List who called what where, ranks with one line together."""
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
    """Show only what differs: 'broadcast float32[4]', 'float32[1023]', 'op MAX', 'root 1'."""
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
    if "sums" in aspects:
        words.append(show_sums(form.sums))
    if "root" in aspects:
        words.append(f"root {form.root}")
    return " ".join(words) or f"{form.name or session.kind_of(op)} {array}".strip()


def _show_array(dtype: str, shapes: Listing[Shape]) -> str:
    if not shapes.items:
        return dtype
    text = f"{dtype}[{','.join(map(str, shapes.items[0]))}]"
    return text if shapes.count == 1 else f"{shapes.count} of {text}"


def find_sides(comparer: Comparer, calls: Mapping[int, OpRef]) -> list[list[OpRef]]:
    """Part calls by what was called, the largest side first; one of which little is known fits any side."""
    sides: list[list[OpRef]] = []
    for _, op in sorted(calls.items()):
        for side in sides:
            if not comparer.differing(op, side[0]):
                side.append(op)
                break
        else:
            sides.append([op])
    return sorted(sides, key=lambda side: (-len(side), side[0].rank))


def differing_ranks(session: Session, sides: Sequence[Sequence[OpRef]]) -> tuple[int, ...]:
    """The ranks outside the side of the majority, else of the one that sends to all; () without either."""
    source = _source_of(session, [op for side in sides for op in side])
    has_room = source is None or not _is_empty(session, sides[0][0])
    if len(sides) > 1 and 2 * len(sides[0]) > sum(map(len, sides)) and has_room:
        return tuple(sorted(op.rank for side in sides[1:] for op in side))
    others = (
        side for side in sides if source is not None and all(op.rank != source for op in side)
    )
    return tuple(sorted(op.rank for side in others for op in side))


def _is_empty(session: Session, op: OpRef) -> bool:
    """Whether it has no room for what is sent to all: a majority of such ranks is none."""
    form = session.form_of(op)
    return any(0 in shape for shape in (*form.inputs.items, *form.outputs.items))


def _source_of(session: Session, calls: Sequence[OpRef]) -> int | None:
    """Return the rank whose array the others have to fit, in one broadcast; else None."""
    roots = {(session.kind_of(op), session.form_of(op).root) for op in calls}
    kind, root = roots.pop()
    if roots or kind != "broadcast" or all(op.rank != root for op in calls):
        return None
    return root


def calls_of_errors(
    session: Session, matched: Matched, errors: Sequence[Failure]
) -> dict[int, OpRef]:
    """Return the calls that the errors of one mismatch are about, by rank; the first error happened first."""
    found = {error.rank: error.op for error in reversed(errors) if error.op is not None}
    # A rank may learn of a mismatch of ops that are counted by themselves in its next such op.
    first = min(errors, key=lambda error: error.seq or sys.maxsize)
    return found | _calls(session, matched, errors[0]) | _calls_aside(session, first)


def _calls(session: Session, matched: Matched, error: Failure) -> dict[int, OpRef]:
    """The op of each rank that an error is about."""
    for index, group in enumerate(session.groups):
        if error.seq and group.label == error.group:
            calls = matched.of(index).at(error.seq)
            if error.op is None or calls.get(error.rank) == error.op:
                return calls
    return {}


def _calls_aside(session: Session, error: Failure) -> dict[int, OpRef]:
    """Return the call of each rank that has the number of an op counted by itself, such as new_group."""
    if error.op is None or not error.seq:
        return {}
    mine, kind = session.ranks[error.rank].ops, session.kind_of(error.op)
    if not mine.flags[error.op.at] & Flag.ASIDE:
        return {}
    found = {}
    for rank, log in session.ranks.items():
        ops = log.ops
        for at in range(len(ops)):
            is_like = (
                ops.flags[at] & Flag.ASIDE
                and ops.seq[at] == error.seq
                and ops.group[at] == mine.group[error.op.at]
            )
            op = OpRef(rank, at)
            if is_like and session.kind_of(op) == kind and rank not in found:
                found[rank] = op
    return found


def reported_advice(session: Session, calls: Mapping[int, OpRef], error: Failure) -> Advice:
    """The hint of the error, and what it is about.

    other ops, or arrays of other sizes from different lines     OTHER_LINES
    the two sides of a message                                   OTHER_LINES, MESSAGE
    at one line, dtype and size differ                           OTHER_ARRAY
    at one line, the size or the root differs                    SIZES; the dtype alone: DTYPES
    """
    traits = traits_of(error.advice) or _traits(session, calls)
    return Advice(error.hint, *traits)


def _traits(session: Session, calls: Mapping[int, OpRef]) -> tuple[Trait, ...]:
    ops = [calls[rank] for rank in sorted(calls)]
    forms = [session.form_of(op) for op in ops]
    kinds = {session.kind_of(op) for op in ops}
    if kinds == {"send", "recv"}:
        return (Trait.OTHER_LINES, Trait.MESSAGE)
    if len(kinds) > 1 or len({form.name for form in forms}) > 1:
        return (Trait.OTHER_LINES,)
    has_types = len({form.dtype for form in forms}) > 1
    inputs = [form.inputs for form in forms]
    if any(one != inputs[0] for one in inputs):
        sites = [
            {session.site_of(op) for op, one in zip(ops, inputs, strict=True) if one == it}
            for it in _each(inputs)
        ]
        if all(not (one & other) for one in sites for other in sites if one is not other):
            return (Trait.OTHER_LINES,)
        return (Trait.OTHER_ARRAY, Trait.DTYPES) if has_types else (Trait.SIZES,)
    if has_types and len({form.op for form in forms}) > 1:
        return ()  # two calls, and no one array
    if has_types:
        return (Trait.DTYPES,)
    return (Trait.SIZES,) if len({form.root for form in forms}) > 1 else ()


def _each(values: Sequence[object]) -> list[object]:
    found: list[object] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
