"""Reads a record: complete, being written, torn by any death, damaged, or hostile.

    with RecordFile("run/rank00012.ddr") as record:      some of it, with few reads
        record.event(1042)
    read_record("run/rank00012.ddr")                     all of it
    record.columns()                                     all of it but the counters, for many ops

Whatever the bytes are: what comes out is a prefix of the events that were written, or RecordError, in a
time bounded by the size of the file. With salvage, all events that are whole come out, and `gaps` says
what is missing. Nothing is asked of the process that writes, and nothing makes it wait.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Self

from distdbg.errors import RecordError
from distdbg.record.columns import Columns, cut
from distdbg.record.entries import (
    Counter,
    Event,
    Gap,
    Group,
    ProgressEntry,
    Pulse,
    Record,
    RecordHeader,
    StateEntry,
    WorkWaitEntry,
)
from distdbg.record.format import (
    MAX_STRING_NBYTES,
    STATE,
    STATE_NBYTES,
    WAIT,
    WAIT_COUNT,
    WAIT_NBYTES,
    EventType,
    Exit,
    Section,
    checksum,
    unpack,
)
from distdbg.record.forms import Form
from distdbg.record.header import EntryLayout, read_opening
from distdbg.record.parse import Parsing
from distdbg.record.recent import RecentOp, find_seq, read_notes, read_one, read_recent
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.references import TRIES, Damaged, References
from distdbg.record.ring import IssuedOp, find_entries, find_entry, find_issued, survey
from distdbg.record.ring_copy import read_rows
from distdbg.record.slices import Slice, read_slice
from distdbg.record.source import ByteSource, Readable

_WAITS_NBYTES: Final = WAIT_COUNT * WAIT_NBYTES
_WAIT: Final = struct.Struct("<" + "".join(field.code for field in WAIT.values()))


#: The state from its beginning: heartbeat, last number, exit, its text and time, three that are
#: passed over and two more, the number of the last text, and behind what is passed over the count of
#: waits.
_PULSE: Final = struct.Struct("<qQQ16x48xQ48xQ")
assert _PULSE.size == STATE["wait_changes"].offset + 8
_STATE: Final = EntryLayout(STATE)
_EXITS: Final = frozenset(Exit)


def read_record(
    readable: Readable, *, salvage: bool = False, parsed: dict[bytes, Form] | None = None
) -> Record:
    """Read all of a record; `parsed` as for `RecordFile.read`."""
    with RecordFile(readable, salvage=salvage) as record:
        return record.read(parsed=parsed)


class RecordFile:
    """An open record. Each method looks at the bytes as they are now."""

    def __init__(self, readable: Readable, *, salvage: bool = False) -> None:
        self._salvage = salvage
        self._source = ByteSource(readable)
        try:
            self._opening = read_opening(self._source, salvage=salvage)
        except BaseException:
            self._source.close()
            raise
        self._tables = self._opening.tables
        self._references = References(self._source, self._tables)

    @property
    def path(self) -> str:
        return self._source.path

    @property
    def header(self) -> RecordHeader:
        return self._opening.header

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state(self) -> StateEntry:
        """The words that change."""
        values = self._read_state()
        code = unpack(values["exit"]) if values["exit"] else None
        references = References(self._source, self._tables)
        return StateEntry(
            heartbeat_ns=values["heartbeat_ns"],
            last_number=values["last_number"],
            exit=Exit(code) if code in _EXITS else None,
            exit_text=references.packed_text(values["exit_text"]),
            exit_ns=values["exit_ns"],
            lost_strings=values["lost_strings"],
            lost_sites=values["lost_sites"],
            lost_parked=values["lost_parked"],
            text_count=values["last_text"],
            level=values["level"],
            clock_offset_ns=values["clock_offset_ns"],
            clock_error_ns=values["clock_error_ns"],
            work_waits=_read_waits(values["waits"], references),
            lost_waits=values["lost_waits"],
            lost_counters=values["lost_counters"],
        )

    def _read_state(self) -> dict[str, Any]:
        data = self._source.read(self._opening.state_offset, STATE_NBYTES)
        if len(data) < STATE_NBYTES:  # the file became shorter
            raise RecordError(f"{self.path} is cut short", path=self.path, offset=len(data))
        return _STATE.read(data)

    def group_count(self) -> int:
        """How many groups were ever made, by one short read."""
        data = self._source.read(self._opening.state_offset + STATE["last_group"].offset, 8)
        return int.from_bytes(data, "little")

    def work_waits(self) -> tuple[WorkWaitEntry, ...]:
        """The threads that wait for an op in flight, by one short read."""
        field = STATE["waits"]
        data = self._source.read(self._opening.state_offset + field.offset, _WAITS_NBYTES)
        return _read_waits(data, References(self._source, self._tables))

    def pulse(self) -> Pulse:
        """The words that tell whether the rank has moved, by one short read."""
        data = self._source.read(self._opening.state_offset, _PULSE.size)
        if len(data) < _PULSE.size:
            raise RecordError(f"{self.path} is cut short", path=self.path, offset=len(data))
        return Pulse(*_PULSE.unpack(data))

    def groups(self) -> tuple[tuple[Group, ProgressEntry], ...]:
        """The groups that are there, also closed ones, and how far they have come."""
        groups, progress = self._read_groups([])
        return tuple((group, progress[group.number]) for group in groups)

    def group(self, number: int) -> Group | None:
        """What one group is; read once. None: not there any more, or damaged."""
        try:
            return self._references.group(number)
        except Damaged:
            return None

    def event(self, number: int) -> Event | None:
        """One event, also a parked one; None: not there any more, not yet, or damaged."""
        found = find_entry(self._source, self._tables, number)
        return self._parse_now(number, *found)[0] if found else None

    def texts(self, after: int) -> list[tuple[int, str]]:
        """The words of the errors and findings that came after number `after` and are still there."""
        to = self.pulse().text_count
        references = References(self._source, self._tables)
        found = []
        for number in range(max(after, to - self._tables[Section.TEXTS].count) + 1, to + 1):
            try:
                words = references.text(number)
            except Damaged:
                continue
            if words is not None:
                found.append((number, words))
        return found

    def survey(self) -> tuple[int, list[int]]:
        """The number of the last event, and those of the ops in flight; without parsing any."""
        return survey(self._source, self._tables)

    @property
    def ring_count(self) -> int:
        """How many events the ring holds."""
        return self._tables[Section.RING].count

    def issued(self, after: int) -> tuple[int, list[IssuedOp]]:
        """The number of the last event, and of the ops after `after` what needs no parsing."""
        last = self.pulse().last_number
        return last, list(find_issued(self._source, self._tables, after, last))

    def recent(self, after: int, most: int) -> list[RecentOp]:
        """The ops that came after number `after`, the newest `most`; nothing of them is looked up."""
        last = self.pulse().last_number
        return read_recent(self._source, self._tables, after=after, last=last, most=most)

    def notes(self, after: int, most: int, only: EventType | None = None) -> list[Event]:
        """The marks, spans, findings and contexts that came after number `after`, the newest `most`.

        Of one type with `only`. Lenient: what they point to is None or empty where it is not there any more.
        """
        last = self.pulse().last_number
        rows = read_notes(self._source, self._tables, after=after, last=last, most=most, only=only)
        events = (self._parse_now(number, row, b"", is_lenient=True)[0] for number, row in rows)
        return [event for event in events if event is not None]

    def slice(self, after: int, last: int, most: int) -> Slice:
        """The entries with numbers from `after` + 1 to `last`, the newest `most`, as columns of words."""
        return read_slice(self._source, self._tables, after=after, last=last, most=most)

    def recent_one(self, number: int) -> RecentOp | None:
        """One op, as `recent` gives it; also a parked one."""
        return read_one(self._source, self._tables, number)

    def find_op(
        self,
        group: int,
        seq: int,
        *,
        flags: int = 0,
        kind: int | None = None,
        peer: int | None = None,
    ) -> int | None:
        """The number of an op by the number of its group and its seq there; see `recent.find_seq`."""
        return find_seq(
            self._source,
            self._tables,
            group=group,
            seq=seq,
            last=self.pulse().last_number,
            flags=flags,
            kind=kind,
            peer=peer,
        )

    def counters(self) -> list[Counter]:
        """What was counted since each group was made, by group, kind and dtype.

        No more is read than is used.
        """
        return self._references.counters(self._read_state()["counter_count"])

    def read(self, *, parsed: dict[bytes, Form] | None = None) -> Record:
        """All of it.

        `parsed` is for the forms of all records of a job: most of them are the same.
        """
        gaps: list[Gap] = []
        if not self._opening.is_whole:
            gaps.append(Gap(first=0, last=0, offset=0, why="the header is damaged"))
        # Before what it refers to: that was written earlier, and stays there longer.
        found = find_entries(self._source, self._tables)
        self._references = References(self._source, self._tables, parsed=parsed)
        self._references.load()
        gaps += found.gaps
        events: list[Event] = []
        for number, data in found.entries.items():
            if not self._salvage and found.end is not None and number >= found.end:
                break
            event, damage = self._parse_now(number, data, found.parked_forms.get(number, b""))
            if damage is not None:
                gaps.append(Gap(first=number, last=number, offset=damage.offset, why=damage.why))
                if not self._salvage:
                    break
            if event is not None:
                events.append(event)
            elif damage is None:
                why = "of a type that this version does not know"
                gaps.append(Gap(first=number, last=number, offset=0, why=why))
        groups, progress = self._read_groups(gaps)
        return Record(
            path=self.path,
            header=self.header,
            state=self.state(),
            groups=groups,
            progress=progress,
            counters=tuple(self._references.counters()),
            events=tuple(events),
            gaps=tuple(gaps),
        )

    def columns(self, *, parsed: dict[bytes, Form] | None = None) -> Columns:
        """All of it but the counters, as columns; lenient whatever `salvage` is.

        `parsed` as for `read`.
        """
        gaps: list[Gap] = []
        if not self._opening.is_whole:
            gaps.append(Gap(first=0, last=0, offset=0, why="the header is damaged"))
        hints = self._read_state()
        rows = read_rows(self._source, self._tables, hints["last_number"])
        self._references = References(self._source, self._tables, parsed=parsed)
        # Most of both sections is empty; what is newer than these words is read on its own.
        self._references.load_part(Section.SITES, hints["site_count"])
        room = 8 + MAX_STRING_NBYTES  # a string is looked for in the most that it can take
        self._references.load_part(Section.STRINGS, hints["strings_nbytes"] + room)
        found = cut(rows, self._references)
        gaps += found.gaps
        groups, progress = self._read_groups(gaps)
        return Columns(
            path=self.path,
            header=self.header,
            state=self.state(),
            groups=groups,
            progress=progress,
            ops=found.ops,
            events=found.events,
            gaps=tuple(gaps),
            overwritten=rows.overwritten,
        )

    def _read_groups(self, gaps: list[Gap]) -> tuple[tuple[Group, ...], dict[int, ProgressEntry]]:
        groups = []
        progress = {}
        for number in self._references.group_numbers():
            try:
                group, far = self._references.group(number), self._references.progress(number)
            except Damaged as damage:
                gaps.append(Gap(first=0, last=0, offset=damage.offset, why=damage.why))
                continue
            if group is not None and far is not None:
                groups.append(group)
                progress[number] = far
        return tuple(groups), progress

    def _parse_now(
        self, number: int, data: bytes, parked_form: bytes, *, is_lenient: bool = False
    ) -> tuple[Event | None, Damaged | None]:
        """`_parse`; what a writer may have been at is read again."""
        event: Event | None = None
        damage: Damaged | None = None
        for _ in range(TRIES if self._source.is_live else 1):
            parsing = Parsing(self._references, is_lenient=is_lenient or self._salvage)
            try:
                event, damage = parsing.parse(data, parked_form), parsing.damage
            except Damaged as error:
                event, damage = None, error
            if damage is None:
                break
            again = find_entry(self._source, self._tables, number)
            if again is None:
                break
            data, parked_form = again
        return event, damage


assert _WAIT.size == WAIT_NBYTES
#: In the thread of a WAIT.
_IS_LIMITED: Final = 1 << 31


def _read_waits(data: bytes, references: References) -> tuple[WorkWaitEntry, ...]:
    """The entries that are there, the oldest first."""
    if not any(data):
        return ()
    found = []
    for start in range(0, len(data) - WAIT_NBYTES + 1, WAIT_NBYTES):
        entry = data[start : start + WAIT_NBYTES]
        number, since_ns, thread, site, check = _WAIT.unpack(entry)
        if number == 0 or check != checksum(entry[:-8]):
            continue
        stack: tuple[RecordedFrame, ...]
        try:
            stack = references.stack(site)
        except Damaged:
            stack = ()
        wait = WorkWaitEntry(
            number=number,
            since_ns=since_ns,
            thread=thread & ~_IS_LIMITED,
            is_limited=bool(thread & _IS_LIMITED),
            stack=stack,
        )
        found.append(wait)
    return tuple(sorted(found, key=lambda wait: wait.since_ns))
