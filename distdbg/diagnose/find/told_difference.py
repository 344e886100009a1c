"""Tells what a mismatch is about that ranks have reported themselves, by the calls that it compares. Pure.

other ops, or arrays of other sizes from different lines     OTHER_LINES
the two sides of a message                                   OTHER_LINES, MESSAGE
new_group with other ranks                                   GROUPS
at one line, dtype and size differ                           OTHER_ARRAY
at one line, the size or the root differs                    SIZES
    the dtype alone differs                                      DTYPES
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distdbg.diagnose.failures import Failure
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait, traits_of


def told_advice(session: Session, calls: Mapping[int, OpRef], error: Failure) -> Advice:
    """The hint of the error, and what it is about."""
    traits = traits_of(error.advice) or _traits(session, calls)
    return Advice(error.hint, *traits)


def _traits(session: Session, calls: Mapping[int, OpRef]) -> tuple[Trait, ...]:
    ops = [calls[rank] for rank in sorted(calls)]
    forms = [session.forms[session.ranks[op.rank].ops.form[op.at]] for op in ops]
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
    if has_types:
        return (Trait.DTYPES,)
    return (Trait.SIZES,) if len({form.root for form in forms}) > 1 else ()


def _each(values: Sequence[object]) -> list[object]:
    found: list[object] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
