"""Turns the bytes of one entry of the ring into an event, with its references resolved."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeVar

from distdbg.record.entries import (
    ContextEntry,
    Event,
    FindingEntry,
    MarkEntry,
    OpEntry,
    SpanBegin,
    SpanEnd,
)
from distdbg.record.format import OP, OP_NBYTES, EventType, Flag, unpack
from distdbg.record.forms import Form
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.references import Damaged, References

_OP: Final = struct.Struct("<" + "".join(field.code for field in OP.values()))
assert _OP.size == OP_NBYTES

#: `value` is signed.
_MAX_WORD: Final = 2**64 - 1

_NO_STACK: Final[tuple[RecordedFrame, ...]] = ()

Value = TypeVar("Value")


class Parsing:
    """One entry. `Damaged` when a reference is; if lenient, an event without it, and `damage`."""

    __slots__ = ("_is_lenient", "_references", "damage")

    def __init__(self, references: References, *, is_lenient: bool) -> None:
        self._references = references
        self._is_lenient = is_lenient
        self.damage: Damaged | None = None

    def parse(self, data: bytes, parked_form: bytes) -> Event | None:
        """Return the event; None: of a type that is not known here."""
        (
            number,
            issued_ns,
            seq,
            value,
            group_number,
            form_number,
            site,
            thread,
            peer,
            type_code,
            flags,
            kind,
            level,
            fingerprint,
            text,
            comm,
            _,
            _,
            started,
            ended,
            outcome,
            error,
        ) = _OP.unpack(data)
        references = self._references
        stack: tuple[RecordedFrame, ...] = self._get(references.stack, site, _NO_STACK)
        if type_code != EventType.OP:
            common = {"number": number, "issued_ns": issued_ns, "thread": thread, "stack": stack}
            if type_code == EventType.FINDING:
                group = self._get(references.group, group_number, None)
                words = self._get(references.text, text, None)
                return FindingEntry(**common, group=group, seq=seq, text=words)
            if type_code == EventType.CONTEXT:
                return ContextEntry(
                    **common,
                    trace_id=f"{seq << 64 | fingerprint:032x}" if value else "",
                    span_id=f"{value & _MAX_WORD:016x}" if value else "",
                    is_sampled=bool(flags & Flag.SAMPLED),
                )
            form = self._get(references.form, form_number, None)
            name = form.name if form else None
            if type_code == EventType.MARK:
                return MarkEntry(**common, name=name, value=_to_float(value))
            if type_code == EventType.SPAN_END:
                return SpanEnd(**common, name=name, begin=value)
            return SpanBegin(**common, name=name) if type_code == EventType.SPAN_BEGIN else None
        outcome = self._packed(outcome)
        started = self._packed(started)
        ended = self._packed(ended)
        source = None if outcome is None else (outcome >> 8) - 1
        if parked_form:
            form = self._get_parked(parked_form, form_number)
        else:
            form = self._get(references.form, form_number, None)
        return OpEntry(
            number=number,
            issued_ns=issued_ns,
            thread=thread,
            stack=stack,
            group=self._get(references.group, group_number, None),
            group_number=group_number,
            seq=seq,
            kind=kind,
            form=form,
            peer=peer if peer >= 0 else None,
            tag=value,
            is_async=bool(flags & Flag.ASYNC),
            is_message=bool(flags & Flag.MESSAGE),
            is_aside=bool(flags & Flag.ASIDE),
            is_end_noticed=bool(flags & Flag.END_NOTICED),
            is_end_queued=bool(flags & Flag.END_QUEUED),
            level=level,
            fingerprint=fingerprint,
            comm=self._get(references.string, comm, ""),
            started_ns=None if started is None else issued_ns + started,
            ended_ns=None if ended is None else issued_ns + ended,
            status=None if outcome is None else outcome & 0xFF,
            source=None if source is None or source < 0 else source,
            error=self._get(references.text, self._packed(error) or 0, None),
        )

    def _packed(self, word: int) -> int | None:
        if word == 0:
            return None
        value = unpack(word)
        if value is None:
            self._note(Damaged("a word that was set later is damaged", 0))
        return value

    def _get(self, look_up: Callable[[int], Value], reference: int, otherwise: Value) -> Value:
        try:
            return look_up(reference)
        except Damaged as damage:
            self._note(damage)
            return otherwise

    def _get_parked(self, data: bytes, number: int) -> Form | None:
        try:
            return self._references.parked_form(data, number)
        except Damaged as damage:
            self._note(damage)
            return None

    def _note(self, damage: Damaged) -> None:
        if not self._is_lenient:
            raise damage
        self.damage = damage


def _to_float(bits: int) -> float | None:
    (value,) = struct.unpack("<d", struct.pack("<q", bits))
    return None if value != value else float(value)
