"""Packets of a Perfetto trace: the fields that are used here, by their numbers.

    Trace.packet                  1   TracePacket
    TracePacket                   timestamp 8, trusted_packet_sequence_id 10, sequence_flags 13,
                                  track_event 11, interned_data 12, track_descriptor 60, clock_snapshot 6
    TrackEvent                    type 9, track_uuid 11, name_iid 10, category_iids 3, debug_annotations 4,
                                  flow_ids 47, counter_value 30, double_counter_value 44
    DebugAnnotation               name_iid 1, int_value 4, double_value 5, string_value 6, string_value_iid 17
    InternedData                  event_categories 1, event_names 2, debug_annotation_names 3,
                                  debug_annotation_string_values 29; each {iid 1, text 2}

One sequence has all packets, so that a name stands in the file once. A test decodes them by Perfetto's own
definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from distdbg.export.wire import chunk, double, tag, text, uint, varint

__all__ = ["chunk", "tag", "uint", "varint"]
BOOTTIME: Final = 6
REALTIME: Final = 1
_SEQUENCE: Final = uint(10, 1)
_FIRST: Final = uint(13, 1)
NEEDS_NAMES: Final = uint(13, 2)
#: What every packet with an event has; `trace.perfetto` writes most of them by columns.
SEQUENCE: Final = _SEQUENCE
#: Words that would be interned, were there not so many already: then they stand in their event.
_MAX_INTERNED: Final = 200_000
EXPLICIT: Final = 3
_SIZE_BYTES: Final = 3


class TrackEventType(IntEnum):
    """`TrackEvent.type`."""

    SLICE_BEGIN = 1
    SLICE_END = 2
    INSTANT = 3
    COUNTER = 4


class InternTable(IntEnum):
    """A field of InternedData."""

    CATEGORIES = 1
    NAMES = 2
    FACT_NAMES = 3
    TEXTS = 29


class Interned:
    """Numbers for words; what is new goes out with `flush`."""

    def __init__(self) -> None:
        self._numbers: dict[InternTable, dict[str, int]] = {table: {} for table in InternTable}
        self._new: list[bytes] = []

    def number(self, table: InternTable, words: str) -> int:
        """The number of these words, from 1."""
        known = self._numbers[table]
        found = known.get(words)
        if found is None:
            found = known[words] = len(known) + 1
            self._new.append(chunk(table, uint(1, found) + text(2, words)))
        return found

    def text_fact(self, name: str, words: str) -> bytes:
        """A debug annotation; `words` stand in it where too many others have numbers."""
        fact = uint(1, self.number(InternTable.FACT_NAMES, name))
        texts = self._numbers[InternTable.TEXTS]
        if len(texts) >= _MAX_INTERNED and words not in texts:
            return chunk(4, fact + text(6, words))
        return chunk(4, fact + uint(17, self.number(InternTable.TEXTS, words)))

    def flush(self) -> bytes:
        """The packets that have to come before whatever uses the new numbers."""
        new, self._new = self._new, []
        return b"".join(
            packet(NEEDS_NAMES + chunk(12, b"".join(new[at : at + 1_000])))
            for at in range(0, len(new), 1_000)
        )


def packet(fields: bytes) -> bytes:
    return chunk(1, _SEQUENCE + fields)


def facts(interned: Interned, values: Mapping[str, str | int | float]) -> bytes:
    """Debug annotations."""
    found = []
    for name, value in values.items():
        if isinstance(value, str):
            found.append(interned.text_fact(name, value))
            continue
        number = uint(1, interned.number(InternTable.FACT_NAMES, name))
        whole = isinstance(value, int) and -(2**63) <= value < 2**63
        found.append(chunk(4, number + (uint(4, int(value)) if whole else double(5, float(value)))))
    return b"".join(found)


def event(
    interned: Interned,
    type_: TrackEventType,
    track: int,
    at_ns: int,
    name: str = "",
    *,
    category: str = "",
    values: Mapping[str, str | int | float] | None = None,
) -> bytes:
    """One packet with one event; `interned.flush` has to come before it."""
    fields = uint(9, type_) + uint(11, track)
    if name:
        fields += uint(10, interned.number(InternTable.NAMES, name))
    if category:
        fields += uint(3, interned.number(InternTable.CATEGORIES, category))
    return packet(
        uint(8, max(at_ns, 0)) + NEEDS_NAMES + chunk(11, fields + facts(interned, values or {}))
    )


def counter(track: int, at_ns: int, value: float) -> bytes:
    number = uint(30, value) if isinstance(value, int) and value >= 0 else double(44, value)
    return packet(
        uint(8, max(at_ns, 0))
        + chunk(11, uint(9, TrackEventType.COUNTER) + uint(11, track) + number)
    )


def opening(clocks: Mapping[int, int]) -> bytes:
    """The first packet: what the clocks show at one moment, by their numbers."""
    snapshot = b"".join(chunk(1, uint(1, clock) + uint(2, ns)) for clock, ns in clocks.items())
    return packet(_FIRST + chunk(6, snapshot + uint(2, BOOTTIME)))


def track(
    uuid: int,
    name: str = "",
    *,
    parent: int = 0,
    order: int = 0,
    has_ordered_children: bool = False,
    about: str = "",
    more: bytes = b"",
) -> bytes:
    """A track, or with `more` a process or a counter."""
    fields = uint(1, uuid)
    if name:
        fields += text(2, name)
    if parent:
        fields += uint(5, parent)
    if has_ordered_children:
        fields += uint(11, EXPLICIT)
    if about:
        fields += text(14, about)
    return packet(chunk(60, fields + uint(12, order) + more))


def ordered_processes() -> bytes:
    """The root of all tracks: processes stand in the order of their tracks."""
    return packet(chunk(60, uint(1, 0) + uint(19, 1)))


def process(pid: int, name: str, *, labels: tuple[str, ...], command: str) -> bytes:
    """The part of a track descriptor that makes it a process."""
    fields = uint(1, pid) + text(2, command) + text(6, name)
    return chunk(3, fields + b"".join(text(8, label) for label in labels))


def counter_unit(unit: str) -> bytes:
    """The part of a track descriptor that makes it a counter; 'bytes' is a unit that Perfetto knows."""
    return chunk(8, uint(3, _SIZE_BYTES) if unit == "bytes" else text(6, unit))
