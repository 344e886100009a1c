"""Follows the references between entries: strings, sites with their stacks, forms, texts, groups.

Three answers: the value; None where a ring has overwritten it since; `Damaged` where it must be there
and its check is wrong. A writer may be at work in the same bytes, so a wrong check is read again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from distdbg.record.entries import Counter, Group, ProgressEntry
from distdbg.record.format import (
    BUCKET_COUNT,
    CHECK_MODULUS,
    FORM,
    GROUP,
    MAX_FRAMES,
    MAX_STRING_NBYTES,
    SITE,
    STRING,
    TEXT,
    Section,
    checksum,
    unpack,
)
from distdbg.record.forms import Form, read_form
from distdbg.record.header import EntryLayout, SectionTables
from distdbg.record.libraries import is_library
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.source import ByteSource

#: How often an entry with a wrong check is read again. A writer is in the midst of one entry for
#: some tens of nanoseconds, one read takes a thousand.
TRIES: Final = 4

_STRING = struct.Struct("<II")
_SITE = struct.Struct("<IIIIQQ")
#: COUNTER as a whole, for they are many: what comes before the buckets, and all buckets.
_COUNTER = struct.Struct(f"<QIIQQQQQQ{3 * BUCKET_COUNT}Q")
_COUNTER_WORDS = 9
#: The part of GROUP that changes.
_PROGRESS = struct.Struct("<6Q")
_GROUP = EntryLayout(GROUP)


class Damaged(Exception):
    """An entry that must be there is not what was written; never leaves this package."""

    def __init__(self, why: str, offset: int) -> None:
        super().__init__(why)
        self.why = why
        self.offset = offset


def has_check(data: bytes, number: int, end: int) -> bool:
    """Whether the check word at `end` fits the words before it, with this number as the first.

    The first word itself is not looked at: it may have been cleared, and the rest be whole.
    """
    total = number + int.from_bytes(data[8:end], "little") * 2**64
    return total % CHECK_MODULUS == int.from_bytes(data[end : end + 8], "little")


class References:
    """The sections that others point into. What was looked up once is kept."""

    def __init__(
        self,
        source: ByteSource,
        tables: SectionTables,
        *,
        parsed: dict[bytes, Form] | None = None,
    ) -> None:
        """`parsed`: forms by their text, shared by whoever reads many records of one job."""
        self._source = source
        self._tables = tables
        self._parsed = {} if parsed is None else parsed
        self._snapshots: dict[Section, bytes] = {}
        self._strings: dict[int, str] = {0: ""}
        self._stacks: dict[int, tuple[RecordedFrame, ...]] = {0: ()}
        self._forms: dict[int, Form | None] = {0: None}
        self._texts: dict[int, str | None] = {0: None}
        self._groups: dict[int, Group | None] = {0: None}

    def load(self) -> None:
        """Read whole sections at once: for whoever reads all events."""
        for section in (Section.FORMS, Section.SITES, Section.STRINGS):
            self.load_part(section, self._tables[section].count)

    def load_part(self, section: Section, count: int) -> None:
        """Read the first `count` entries at once; what is wanted beyond them is read when it is."""
        table = self._tables[section]
        self._snapshots[section] = self._source.read(
            table.offset, min(count, table.count) * table.entry_nbytes
        )

    # ------------------------------------------------------------------------------- the values

    def string(self, reference: int) -> str:
        """The string at 8 times `reference`."""
        known = self._strings.get(reference)
        if known is None:
            known = self._strings[reference] = self._retry(self._read_string, reference)
        return known

    def stack(self, index: int) -> tuple[RecordedFrame, ...]:
        """The frame at `index` and its callers."""
        known = self._stacks.get(index)
        if known is None:
            known = self._stacks[index] = self._read_stack(index)
        return known

    def form(self, number: int) -> Form | None:
        """The form of this number; None: overwritten."""
        if number not in self._forms:
            data = self._numbered(Section.FORMS, number, is_text_whole)
            self._forms[number] = (
                None if data is None else self._parse_form(data, self._offset(number))
            )
        return self._forms[number]

    def parked_form(self, data: bytes, number: int) -> Form | None:
        """The form that a parked op took along; None: it had been overwritten before."""
        if number == 0:
            return None
        found = int.from_bytes(data[:8], "little")
        if found in (0, number) and is_text_whole(data, number):
            return self._parse_form(data, 0)
        if found != number and is_text_whole(data, found):
            return None
        raise Damaged(f"form {number} of a parked op is damaged", 0)

    def text(self, number: int) -> str | None:
        """The text of this number; None: overwritten."""
        if number not in self._texts:
            data = self._numbered(Section.TEXTS, number, is_text_whole)
            words = None if data is None else _text_of(data).decode("utf-8", "backslashreplace")
            self._texts[number] = words
        return self._texts[number]

    def group(self, number: int) -> Group | None:
        """The group of this number; None: overwritten."""
        if number not in self._groups:
            data = self._numbered(Section.GROUPS, number, _is_group_whole)
            self._groups[number] = None if data is None else self._to_group(data, number)
        return self._groups[number]

    def group_numbers(self) -> list[int]:
        """List the numbers of all groups that are there."""
        table = self._tables[Section.GROUPS]
        data = self._source.read(table.offset, table.count * table.entry_nbytes)
        whole = len(data) // table.entry_nbytes * table.entry_nbytes
        words = struct.iter_unpack(f"<Q{table.entry_nbytes - 8}x", data[:whole])
        return sorted(n for index, (n,) in enumerate(words) if n and n % table.count == index)

    def progress(self, number: int) -> ProgressEntry | None:
        """How far the group has come; None: overwritten."""
        data = self._numbered(Section.GROUPS, number, _is_group_whole)
        if data is None:
            return None
        closed_ns, issued, ended, current, broken, site = _PROGRESS.unpack_from(
            data, GROUP["closed_ns"].offset
        )
        return ProgressEntry(
            closed_ns=closed_ns or None,
            closed_at=_of_program(self.stack(site)) if closed_ns and site else None,
            issued_seq=issued,
            ended_seq=ended,
            current=current,
            broken=self.packed_text(broken),
        )

    def packed_text(self, word: int) -> str | None:
        """The text that a PACKED word names; None: not set; "": set, and no longer there."""
        number = unpack(word) if word else None
        if not number:
            return None
        try:
            return self.text(number) or ""
        except Damaged:
            return ""

    def counters(self, count: int | None = None) -> list[Counter]:
        """All that count something; `count`: among the first so many alone."""
        table = self._tables[Section.COUNTERS]
        count = table.count if count is None else min(count, table.count)
        data = self._source.read(table.offset, count * table.entry_nbytes)
        first, second = _COUNTER_WORDS + BUCKET_COUNT, _COUNTER_WORDS + 2 * BUCKET_COUNT
        counters = []
        for start in range(0, len(data) - table.entry_nbytes + 1, table.entry_nbytes):
            words = _COUNTER.unpack_from(data, start)
            if not words[0]:
                continue
            group, kind, dtype, ended, failed, nbytes, duration, wait, longest = words[
                :_COUNTER_WORDS
            ]
            counters.append(
                Counter(
                    group=group,
                    kind=kind,
                    dtype=self._dtype(dtype),
                    ended=ended,
                    failed=failed,
                    nbytes=nbytes,
                    duration_ns=duration,
                    wait_ns=wait,
                    longest_ns=longest,
                    duration_buckets=words[_COUNTER_WORDS:first],
                    wait_buckets=words[first:second],
                    size_buckets=words[second:],
                )
            )
        return counters

    def _dtype(self, reference: int) -> str:
        try:
            return self.string(reference)
        except Damaged:
            return ""

    # ------------------------------------------------------------------------------- the bytes

    def _entry(self, section: Section, index: int, nbytes: int, *, fresh: bool = False) -> bytes:
        """Part of an entry; short when the file ends there."""
        table = self._tables[section]
        start = index * table.entry_nbytes
        nbytes = min(nbytes, table.count * table.entry_nbytes - start)
        snapshot = self._snapshots.get(section, b"")
        if start + nbytes <= len(snapshot) and not fresh:
            return snapshot[start : start + nbytes]
        return self._source.read(table.offset + start, nbytes)

    def _numbered(
        self, section: Section, number: int, is_whole: Callable[[bytes, int], bool]
    ) -> bytes | None:
        """The entry of this number in a ring."""
        table = self._tables[section]
        index = number % table.count
        offset = table.offset + index * table.entry_nbytes
        for attempt in range(TRIES if self._source.is_live else 1):
            data = self._entry(section, index, table.entry_nbytes, fresh=attempt > 0)
            if len(data) < table.entry_nbytes:
                raise Damaged(f"the file ends before {_name(section)} {number}", offset)
            found = int.from_bytes(data[:8], "little")
            if found in (0, number) and is_whole(data, number):
                return data
            # Another one has its place, or is being written there.
            if found == 0 or (found != number and is_whole(data, found)):
                return None
        raise Damaged(f"{_name(section)} {number} is damaged", offset)

    def _offset(self, form: int) -> int:
        table = self._tables[Section.FORMS]
        return table.offset + form % table.count * table.entry_nbytes

    def _retry(self, read: Callable[[int, bool], Any], reference: int) -> Any:
        try:
            return read(reference, False)
        except Damaged:
            if not self._source.is_live:
                raise
        return read(reference, True)

    def _read_string(self, reference: int, fresh: bool) -> str:
        table = self._tables[Section.STRINGS]
        offset = table.offset + reference * 8
        data = self._entry(Section.STRINGS, reference * 8, 8 + MAX_STRING_NBYTES, fresh=fresh)
        if len(data) >= 8:
            nbytes, check = _STRING.unpack_from(data)
            text = data[8 : 8 + nbytes]
            if len(text) == nbytes and (sum(text) + nbytes) % 0xFFFFFFFF == check:
                return text.decode("utf-8", "backslashreplace")
        raise Damaged(f"the string at {offset:,} is damaged", offset)

    def _read_stack(self, index: int) -> tuple[RecordedFrame, ...]:
        frames: list[RecordedFrame] = []
        while index and len(frames) < MAX_FRAMES:
            frame, parent = self._retry(self._read_site, index)
            frames.append(frame)
            # A caller is written before what it calls. So no chain ever comes back to itself.
            if parent >= index:
                raise self._damaged_site(index)
            index = parent
        return tuple(frames)

    def _read_site(self, index: int, fresh: bool) -> tuple[RecordedFrame, int]:
        if index < self._tables[Section.SITES].count:
            data = self._entry(Section.SITES, index, _SITE.size, fresh=fresh)
            if len(data) == _SITE.size:
                file, function, line, parent, own_index, check = _SITE.unpack(data)
                if own_index == index and checksum(data[:-8]) == check:
                    return RecordedFrame(self.string(file), line, self.string(function)), parent
        raise self._damaged_site(index)

    def _damaged_site(self, index: int) -> Damaged:
        table = self._tables[Section.SITES]
        return Damaged(f"site {index} is damaged", table.offset + index * table.entry_nbytes)

    def _parse_form(self, data: bytes, offset: int) -> Form:
        text = _text_of(data)
        form = self._parsed.get(text)
        if form is None:
            try:
                form = self._parsed[text] = read_form(text)
            except ValueError as error:
                raise Damaged(f"a form that cannot be parsed: {error}", offset) from None
        return form

    def _to_group(self, data: bytes, number: int) -> Group:
        values = _GROUP.read(data)
        return Group(
            number=number,
            created_ns=values["created_ns"],
            name=self.string(values["name"]),
            desc=self.string(values["desc"]),
            ranks=self.string(values["ranks"]),
            backend=self.string(values["backend"]),
            size=values["size"],
            rank=values["rank"],
            timeout_ns=values["timeout_ns"],
            stack=self.stack(values["site"]),
        )


def _name(section: Section) -> str:
    return section.name.lower().removesuffix("s")


def _of_program(stack: tuple[RecordedFrame, ...]) -> RecordedFrame | None:
    """The innermost frame of a stack that is a line of the program."""
    return next((frame for frame in stack if not is_library(frame.file)), None)


def _is_group_whole(data: bytes, number: int) -> bool:
    return has_check(data, number, GROUP["check"].offset)


def is_text_whole(data: bytes, number: int) -> bool:
    """Whether these are the bytes of form or text `number`, whatever their first word says."""
    nbytes = int.from_bytes(data[8:16], "little")
    start = FORM["text"].offset
    if nbytes > len(data) - start:
        return False
    padded = data[start : start + (nbytes + 7) // 8 * 8]
    total = number + nbytes + int.from_bytes(padded, "little")
    return total % CHECK_MODULUS == int.from_bytes(data[16:24], "little")


def _text_of(data: bytes) -> bytes:
    start = FORM["text"].offset
    return data[start : start + int.from_bytes(data[8:16], "little")]


# Both rings are read by one function, and these two by their structs.
assert FORM["text"].offset == TEXT["text"].offset
assert (_STRING.size, _SITE.size) == (8, SITE["check"].offset + 8)
assert [field.offset for field in STRING.values()] == [0, 4]
