"""Builds a record in memory from a few lines, by the layout alone: independent of the native writer.

    build = RecordBuilder(rank=0, world_size=2)
    group = build.add_group("dp", ranks="0-1")
    number = build.issue("all_reduce", group, at_ns=1_000, stack=[("train.py", 80, "step")])
    build.end(number, after_ns=250)
    record = read_record(build.to_bytes())

Every store of 8 bytes is kept in `stores`, in the order in which a writer makes them; `torn(n)` is the
file as a kill after the first n of them leaves it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, Final

from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import (
    BYTE_ORDER,
    COUNTER,
    FORM,
    GROUP,
    HEADER,
    HEADER_NBYTES,
    MAGIC,
    OP,
    OP_NBYTES,
    SECTION,
    SITE,
    STATE,
    STATE_NBYTES,
    VERSION,
    WAIT,
    WAIT_NBYTES,
    EntryField,
    EventType,
    Exit,
    Flag,
    Section,
    checksum,
    pack,
)
from distdbg.record.forms import write_form, write_mark
from distdbg.record.header import LEAST_ENTRY_NBYTES

Site = tuple[str, int, str]

_NAN: Final = float("nan")


class RecordBuilder:
    """A writer that does not hurry. Sections are small, so that every byte of a file can be tried."""

    def __init__(
        self,
        *,
        rank: int = 0,
        world_size: int = 1,
        ring_count: int = 8,
        form_count: int = 12,
        site_count: int = 8,
        text_count: int = 2,
        parked_count: int = 2,
        group_count: int = 4,
        counter_count: int = 2,
        strings_nbytes: int = 512,
        **header: Any,
    ) -> None:
        counts = {
            Section.GROUPS: group_count,
            Section.COUNTERS: counter_count,
            Section.FORMS: form_count,
            Section.SITES: site_count,
            Section.STRINGS: strings_nbytes,
            Section.TEXTS: text_count,
            Section.PARKED: parked_count,
            Section.RING: ring_count,
        }
        self.offsets: dict[Section, int] = {}
        offset = HEADER_NBYTES + STATE_NBYTES
        rows = b""
        for section, count in counts.items():
            self.offsets[section] = offset
            rows += struct.pack(SECTION, offset, count, LEAST_ENTRY_NBYTES[section])
            offset += count * LEAST_ENTRY_NBYTES[section]
        self._counts = counts
        self._bytes = bytearray(offset)
        #: Offset and bytes of each store since the file got its name.
        self.stores: list[tuple[int, bytes]] = []
        self._write_header(rank=rank, world_size=world_size, sections=rows, **header)
        self._strings: dict[str, int] = {"": 0}
        self._sites: dict[tuple[Any, ...], int] = {}
        self._forms: dict[bytes, int] = {}
        self._state = {"strings_nbytes": 8, "site_count": 1}
        self._seqs: dict[int, int] = {}
        self._parked = 0
        for name, value in self._state.items():
            self._put(HEADER_NBYTES, STATE[name], value)
        self.stores.clear()
        self._initial = bytes(self._bytes)

    # ------------------------------------------------------------------------------- the result

    def to_bytes(self) -> bytes:
        return bytes(self._bytes)

    def torn(self, store_count: int) -> bytes:
        """The file after the first `store_count` stores."""
        data = bytearray(self._initial)
        for offset, word in self.stores[:store_count]:
            data[offset : offset + len(word)] = word
        return bytes(data)

    def offset_of(self, section: Section, index: int) -> int:
        return self.offsets[section] + index * LEAST_ENTRY_NBYTES[section]

    # ------------------------------------------------------------------------------- what a rank does

    def add_group(
        self,
        desc: str,
        *,
        ranks: str = "0",
        size: int = 1,
        rank: int = 0,
        backend: str = "cpu",
        timeout_ns: int = 1_800 * 10**9,
        at_ns: int = 0,
        stack: Sequence[Site] = (),
    ) -> int:
        number = self._next("last_group")
        fields = {
            "created_ns": at_ns,
            "name": self.add_string(f"{number}:{desc}"),
            "desc": self.add_string(desc),
            "ranks": self.add_string(ranks),
            "backend": self.add_string(backend),
            "size": size,
            "rank": rank,
            "timeout_ns": timeout_ns,
            "site": self.add_stack(stack),
        }
        self._write_entry(Section.GROUPS, number, GROUP, fields)
        self._set_state("last_group", number)
        return number

    def set_group(self, number: int, **fields: int) -> None:
        """Set words of a group that change: closed_ns, issued_seq, ended_seq, current, broken."""
        for name, value in fields.items():
            self._put(self._place(Section.GROUPS, number), GROUP[name], value)

    def issue(
        self,
        kind: str,
        group: int = 1,
        *,
        at_ns: int = 0,
        seq: int | None = None,
        stack: Sequence[Site] = (),
        peer: int = -1,
        tag: int = 0,
        is_async: bool = False,
        level: int = 2,
        fingerprint: int = 0,
        thread: int = 1,
        comm: str = "",
        **form: Any,
    ) -> int:
        """Write an op that has not ended; further arguments are those of `write_form`."""
        is_message = kind in ("send", "recv")
        if seq is None:
            seq = self._seqs[group] = self._seqs.get(group, 0) + 1
        text = write_form(name=form.pop("name", kind), kind=kind, **form)
        return self._write_op(
            EventType.OP,
            issued_ns=at_ns,
            seq=seq,
            value=tag,
            group=group,
            form=self.add_form(text),
            site=self.add_stack(stack),
            thread=thread,
            peer=peer,
            flags=Flag.ASYNC * is_async | Flag.MESSAGE * is_message,
            kind=KIND_LABELS.index(kind),
            level=level,
            fingerprint=fingerprint,
            comm=self.add_string(comm),
        )

    def start(self, number: int, *, after_ns: int) -> None:
        self._put(self._find(number), OP["started"], pack(after_ns))

    def end(
        self,
        number: int,
        *,
        after_ns: int,
        status: int = 0,
        source: int = -1,
        error: str | None = None,
    ) -> None:
        place = self._find(number)
        if error is not None:
            self._put(place, OP["error"], pack(self.add_text(error)))
        self._put(place, OP["outcome"], pack(status | (source + 1) << 8))
        self._put(place, OP["ended"], pack(after_ns))

    def mark(self, name: str, value: float = _NAN, *, at_ns: int = 0) -> int:
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        form = self.add_form(write_mark(name))
        return self._write_op(EventType.MARK, issued_ns=at_ns, value=bits, form=form, thread=1)

    def begin_span(self, name: str, *, at_ns: int = 0) -> int:
        form = self.add_form(write_mark(name))
        return self._write_op(EventType.SPAN_BEGIN, issued_ns=at_ns, form=form, thread=1)

    def end_span(self, begin: int, *, at_ns: int = 0) -> int:
        return self._write_op(EventType.SPAN_END, issued_ns=at_ns, value=begin, thread=1)

    def context(
        self,
        trace_id: int,
        span_id: int,
        *,
        is_sampled: bool = True,
        thread: int = 1,
        at_ns: int = 0,
    ) -> int:
        """A thread is in this span of the user's traces from now on; 0, 0: in none."""
        signed = span_id - 2**64 if span_id >= 2**63 else span_id
        return self._write_op(
            EventType.CONTEXT,
            issued_ns=at_ns,
            seq=trace_id >> 64,
            fingerprint=trace_id & 2**64 - 1,
            value=signed,
            flags=int(Flag.SAMPLED) if is_sampled else 0,
            thread=thread,
        )

    def find(self, text: str, group: int = 0, *, at_ns: int = 0) -> int:
        """Write a finding."""
        number = self.add_text(text)
        return self._write_op(
            EventType.FINDING, issued_ns=at_ns, group=group, text=number, thread=1
        )

    def write_event(self, type_code: int, **fields: int) -> int:
        """Write an event of any type, also of one that no version knows."""
        return self._write_op(type_code, **fields)

    def count(self, index: int, group: int, kind: str, dtype: str = "", **fields: Any) -> None:
        """Fill one counter; buckets are lists of 40."""
        place = self.offset_of(Section.COUNTERS, index)
        what = KIND_LABELS.index(kind) | self.add_string(dtype) << 32
        values = {"kind": what, **fields, "group": group}
        for name, value in values.items():
            words = value if isinstance(value, list) else [value]
            self._store(place + COUNTER[name].offset, struct.pack(f"<{len(words)}Q", *words))

    def wait(
        self,
        number: int,
        *,
        since_ns: int = 0,
        thread: int = 1,
        stack: Sequence[Site] = (),
        place: int = 0,
    ) -> None:
        """A thread waits from now on for an op that was issued earlier."""
        words = [number, since_ns, thread | self.add_stack(stack) << 32]
        at = HEADER_NBYTES + STATE["waits"].offset + place * WAIT_NBYTES
        for index, word in enumerate([*words, checksum(struct.pack("<3Q", *words))]):
            self._store(at + 8 * index, struct.pack("<Q", word))
        self._set_state("wait_changes", self._state.get("wait_changes", 0) + 1)

    def end_wait(self, place: int = 0) -> None:
        at = HEADER_NBYTES + STATE["waits"].offset + place * WAIT_NBYTES
        self._store(at + WAIT["check"].offset, bytes(8))
        self._store(at, bytes(8))
        self._set_state("wait_changes", self._state["wait_changes"] + 1)

    def exit(self, how: Exit, *, at_ns: int = 0, text: str | None = None) -> None:
        if text is not None:
            self._set_state("exit_text", pack(self.add_text(text)))
        self._set_state("exit_ns", at_ns)
        self._set_state("exit", pack(how))

    def set_state(self, **words: int) -> None:
        for name, value in words.items():
            self._set_state(name, value)

    # ------------------------------------------------------------------------------- what they point to

    def add_string(self, text: str) -> int:
        if text not in self._strings:
            data = text.encode("utf-8", "surrogateescape")
            start = self._state["strings_nbytes"]
            end = start + 8 + (len(data) + 7) // 8 * 8
            assert end <= self._counts[Section.STRINGS], "no room for the string"
            place = self.offsets[Section.STRINGS] + start
            self._store(place + 8, data.ljust(end - start - 8, b"\0"))
            check = (sum(data) + len(data)) % 0xFFFFFFFF
            self._store(place, struct.pack("<II", len(data), check))
            self._set_state("strings_nbytes", end)
            self._strings[text] = start // 8
        return self._strings[text]

    def add_stack(self, stack: Sequence[Site]) -> int:
        """The call site first."""
        index = 0
        for file, line, function in reversed(stack):
            index = self.add_site(file, line, function, parent=index)
        return index

    def add_site(self, file: str, line: int, function: str, *, parent: int = 0) -> int:
        key = (file, line, function, parent)
        if key not in self._sites:
            index = self._state["site_count"]
            assert index < self._counts[Section.SITES], "no room for the site"
            names = self.add_string(file) | self.add_string(function) << 32
            words = [names, line | parent << 32, index]
            words.append(checksum(struct.pack("<3Q", *words)))
            place = self.offset_of(Section.SITES, index)
            for offset in (8, 16, 24, 0):
                self._store(place + offset, struct.pack("<Q", words[offset // 8]))
            assert SITE["check"].offset == 24
            self._set_state("site_count", index + 1)
            self._sites[key] = index
        return self._sites[key]

    def add_form(self, text: bytes) -> int:
        last, count = self._state.get("last_form", 0), self._counts[Section.FORMS]
        # Written again before the ring of forms can come round to it.
        slack = max(1, count - self._counts[Section.RING])
        if text not in self._forms or last - self._forms[text] >= slack:
            self._forms[text] = self._write_words(Section.FORMS, "last_form", text)
        return self._forms[text]

    def add_text(self, text: str) -> int:
        return self._write_words(Section.TEXTS, "last_text", text.encode())

    # ------------------------------------------------------------------------------- the stores

    def _write_header(self, **values: Any) -> None:
        values = {
            "magic": MAGIC,
            "version": VERSION,
            "byte_order": BYTE_ORDER,
            "header_nbytes": HEADER_NBYTES,
            "pid": 4711,
            "process_start": 1,
            "total_nbytes": len(self._bytes),
            "host": "n14",
            "boot_id": "00000000-0000-0000-0000-000000000000",
            "distdbg_version": "0.1.0",
            "python_version": "3.12.1",
            "run": "example",
            "argv": json.dumps(["train.py"]),
            **values,
        }
        for name, value in values.items():
            data = value.encode() if isinstance(value, str) else value
            struct.pack_into("<" + HEADER[name].code, self._bytes, HEADER[name].offset, data)
        check = checksum(bytes(self._bytes[: HEADER_NBYTES - 8]))
        struct.pack_into("<Q", self._bytes, HEADER_NBYTES - 8, check)

    def _write_op(self, type_code: int, **fields: int) -> int:
        number = self._next("last_number")
        place = self._place(Section.RING, number)
        old = self._bytes[place : place + OP_NBYTES]
        is_op = old[OP["type"].offset] == EventType.OP
        if any(old[:8]) and is_op and not any(old[OP["ended"].offset :][:8]):
            self._park(old)
        self._write_entry(
            Section.RING, number, OP, {"peer": -1, **fields, "type": type_code}, nbytes=OP_NBYTES
        )
        self._set_state("last_number", number)
        return number

    def _park(self, op: bytearray) -> None:
        index = self._parked % self._counts[Section.PARKED]
        self._parked += 1
        (form,) = struct.unpack_from("<Q", op, OP["form"].offset)
        start = self._place(Section.FORMS, form)
        form_nbytes = LEAST_ENTRY_NBYTES[Section.FORMS]
        data = bytes(op) + bytes(self._bytes[start : start + form_nbytes])
        place = self.offset_of(Section.PARKED, index)
        self._store(place, bytes(8))
        self._store(place + 8, data[8:])
        self._store(place, data[:8])

    def _write_entry(
        self,
        section: Section,
        number: int,
        fields: dict[str, EntryField],
        values: dict[str, int],
        nbytes: int | None = None,
    ) -> None:
        nbytes = nbytes or LEAST_ENTRY_NBYTES[section]
        data = bytearray(nbytes)
        for name, value in {**values, "number": number}.items():
            struct.pack_into("<" + fields[name].code, data, fields[name].offset, value)
        check = fields["check"].offset
        data[check : check + 8] = checksum(bytes(data[:check])).to_bytes(8, "little")
        place = self._place(section, number)
        self._store(place, bytes(8))
        self._store(place + 8, bytes(data[8:]))
        self._store(place, bytes(data[:8]))

    def _write_words(self, section: Section, last: str, text: bytes) -> int:
        number = self._next(last)
        room = int(FORM["text"].code[:-1]) if section is Section.FORMS else 2024
        text = text[:room]
        padded = text.ljust((len(text) + 7) // 8 * 8, b"\0")
        check = checksum(struct.pack("<2Q", number, len(text)) + padded)
        place = self._place(section, number)
        self._store(place, bytes(8))
        self._store(place + 8, struct.pack("<Q", len(text)))
        self._store(place + FORM["text"].offset, padded)
        self._store(place + FORM["check"].offset, check.to_bytes(8, "little"))
        self._store(place, number.to_bytes(8, "little"))
        self._set_state(last, number)
        return number

    def _next(self, last: str) -> int:
        return self._state.get(last, 0) + 1

    def _place(self, section: Section, number: int) -> int:
        return self.offset_of(section, number % self._counts[section])

    def _find(self, number: int) -> int:
        word = number.to_bytes(8, "little")
        places = [self._place(Section.RING, number)]
        places += [self.offset_of(Section.PARKED, i) for i in range(self._counts[Section.PARKED])]
        return next(place for place in places if self._bytes[place : place + 8] == word)

    def _set_state(self, name: str, value: int) -> None:
        self._state[name] = value
        self._put(HEADER_NBYTES, STATE[name], value)

    def _put(self, place: int, field: EntryField, value: int) -> None:
        self._store(place + field.offset, struct.pack("<" + field.code, value))

    def _store(self, offset: int, data: bytes) -> None:
        for start in range(0, len(data), 8):
            word = data[start : start + 8]
            self.stores.append((offset + start, word))
            self._bytes[offset + start : offset + start + len(word)] = word
