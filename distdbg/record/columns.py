"""A record as columns: what `reader.read_record` gives as objects, for readers of thousands of records.

    with RecordFile("run/rank00012.ddr", salvage=True) as record:
        columns = record.columns()
    columns.seq[i], columns.forms[columns.form[i]]

An op costs a microsecond instead of twenty: its words are cut out of the ring by strides, and each form,
site, group and name is looked up once for all ops that point to it. Always lenient: what is whole is
there, and `gaps` says what is not.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from struct import calcsize
from typing import Final, TypeVar

from distdbg.record.entries import Event, Gap, Group, ProgressEntry, RecordHeader, StateEntry
from distdbg.record.format import OP, OP_NBYTES, PACK_SALT, EventType
from distdbg.record.forms import Form
from distdbg.record.parse import Parsing
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.references import Damaged, References
from distdbg.record.ring_copy import Rows, to_array

#: A time that is not set, or damaged.
UNSET: Final = -(2**63)
_MAX_NS: Final = 2**63 - 1

Value = TypeVar("Value")


@dataclass(slots=True, kw_only=True)
class OpColumns:
    """Ops in the order of their numbers, parked ones first. What `OP` calls by another name is said."""

    number: array[int]
    issued_ns: array[int]
    started_ns: array[int]
    ended_ns: array[int]
    has_ended: bytes
    """1 also where the time of the end is damaged."""
    outcome: Sequence[int]
    """As in `OP`; -1: not set, or damaged."""
    seq: array[int]
    tag: array[int]
    """`value`."""
    group: array[int]
    form: array[int]
    """0: none, or in `parked_forms`."""
    site: array[int]
    thread: array[int]
    peer: array[int]
    kind: bytes
    flags: bytes
    level: bytes
    fingerprint: array[int]
    comm: array[int]
    groups: dict[int, Group | None]
    """These are by the numbers in the columns above."""
    forms: dict[int, Form | None]
    stacks: dict[int, tuple[RecordedFrame, ...]]
    comms: dict[int, str]
    parked_forms: dict[int, Form | None]
    """By the index of the op."""
    errors: dict[int, str]
    """What a failed op said, by its index."""

    def __len__(self) -> int:
        return len(self.number)


@dataclass(slots=True, kw_only=True)
class Columns:
    """All that a file says, but for the counters."""

    path: str
    header: RecordHeader
    state: StateEntry
    groups: tuple[Group, ...]
    progress: dict[int, ProgressEntry]
    ops: OpColumns
    events: tuple[Event, ...]
    """Marks, spans, findings and contexts."""
    gaps: tuple[Gap, ...]
    overwritten: int
    """How many events the ring had no room for any more."""


@dataclass(slots=True)
class Cut:
    """What the rows of a ring have become."""

    ops: OpColumns
    events: tuple[Event, ...]
    gaps: list[Gap]


def cut(rows: Rows, references: References) -> Cut:
    """Cut rows into columns, and look up what they point to."""
    op_rows, others = _split(rows.data)
    looking = _Looking(_column(op_rows, "number", "q"))
    ops = _cut_ops(op_rows, rows, references, looking)
    events = []
    for row in others:
        parsing = Parsing(references, is_lenient=True)
        event = parsing.parse(row, b"")
        number = int.from_bytes(row[:8], "little")
        if parsing.damage is not None:
            looking.damages[number] = parsing.damage
        elif event is None:
            looking.damages[number] = Damaged("of a type that this version does not know", 0)
        if event is not None:
            events.append(event)
    gaps = [
        Gap(first=number, last=number, offset=damage.offset, why=damage.why)
        for number, damage in sorted(looking.damages.items())
    ]
    return Cut(ops, tuple(events), [*rows.gaps, *gaps])


def _split(data: bytes) -> tuple[bytes, list[bytes]]:
    """The rows of ops, and those of all other events."""
    types = data[OP["type"].offset :: OP_NBYTES]
    if types.count(EventType.OP) == len(types):
        return data, []
    ops: list[bytes] = []
    others: list[bytes] = []
    for index, type_code in enumerate(types):
        row = data[index * OP_NBYTES : (index + 1) * OP_NBYTES]
        (ops if type_code == EventType.OP else others).append(row)
    return b"".join(ops), others


def _cut_ops(data: bytes, rows: Rows, references: References, looking: _Looking) -> OpColumns:
    issued_ns = _column(data, "issued_ns", "q")
    form = _column(data, "form", "Q")
    parked_forms: dict[int, Form | None] = {}
    for at, number in enumerate(looking.numbers if rows.parked_forms else ()):
        taken = rows.parked_forms.get(number)
        if taken:
            parked_forms[at] = looking.up_one(references.parked_form, taken, form[at], number)
            form[at] = 0
    ended = _column(data, "ended", "Q")
    group, site = _column(data, "group", "Q"), _column(data, "site", "I")
    comm = _column(data, "comm", "I")
    return OpColumns(
        number=looking.numbers,
        issued_ns=issued_ns,
        started_ns=looking.times(issued_ns, _column(data, "started", "Q")),
        ended_ns=looking.times(issued_ns, ended),
        has_ended=bytes(map(bool, ended)),
        outcome=looking.packed(_column(data, "outcome", "Q")),
        seq=_column(data, "seq", "q"),
        tag=_column(data, "value", "q"),
        group=group,
        form=form,
        site=site,
        thread=_column(data, "thread", "I"),
        peer=_column(data, "peer", "i"),
        kind=data[OP["kind"].offset :: OP_NBYTES],
        flags=data[OP["flags"].offset :: OP_NBYTES],
        level=data[OP["level"].offset :: OP_NBYTES],
        fingerprint=_column(data, "fingerprint", "Q"),
        comm=comm,
        groups=looking.up(references.group, group, None),
        forms=looking.up(references.form, form, None),
        stacks=looking.up(references.stack, site, ()),
        comms=looking.up(references.string, comm, ""),
        parked_forms=parked_forms,
        errors=_errors(_column(data, "error", "Q"), references, looking),
    )


def _errors(words: array[int], references: References, looking: _Looking) -> dict[int, str]:
    if not any(words):
        return {}
    numbers = [max(number, 0) for number in looking.packed(words)]
    texts = looking.up(references.text, numbers, None)
    return {at: text for at, n in enumerate(numbers) if n and (text := texts[n]) is not None}


def _column(data: bytes, name: str, code: str) -> array[int]:
    """One field of all ops, cut out without a copy of all others."""
    nbytes = calcsize(code)
    words = memoryview(data).cast(code)  # type: ignore[call-overload]  # a word, not a literal
    return to_array(code, words[OP[name].offset // nbytes :: OP_NBYTES // nbytes].tobytes())


class _Looking:
    """Looks up what a column points to, and keeps what is damaged by the number of the event."""

    def __init__(self, numbers: array[int]) -> None:
        self.numbers = numbers
        #: One reason for each event that cannot be read whole.
        self.damages: dict[int, Damaged] = {}

    def up(
        self, read: Callable[[int], Value], column: Sequence[int], otherwise: Value
    ) -> dict[int, Value]:
        """The value of each number that the column has."""
        found = {}
        for number in set(column):
            try:
                found[number] = read(number)
            except Damaged as damage:
                found[number] = otherwise
                self._note((at for at, n in enumerate(column) if n == number), damage)
        return found

    def up_one(
        self,
        read: Callable[[bytes, int], Form | None],
        taken: bytes,
        form: int,
        number: int,
    ) -> Form | None:
        """The form that a parked op took along."""
        try:
            return read(taken, form)
        except Damaged as damage:
            self.damages[number] = damage
            return None

    def packed(self, words: array[int]) -> list[int]:
        """The values of PACKED words; -1 for what is not set or damaged."""
        values = {word: -1 if word == 0 else _unpack(word) for word in set(words)}
        for word, value in values.items():
            if value < 0 < word:
                self._note((at for at, w in enumerate(words) if w == word), _damaged_word())
        return [values[word] for word in words]

    def times(self, issued_ns: array[int], words: array[int]) -> array[int]:
        """PACKED times after the issue as times."""
        salt, unset = PACK_SALT, UNSET
        values = [
            then + (word >> 16)
            if word and word & 0xFFFF == ((word >> 16) + salt) % 0xFFFF
            else unset
            for then, word in zip(issued_ns, words, strict=True)
        ]
        if values.count(unset) > words.count(0):
            damaged = (at for at, value in enumerate(values) if value == unset and words[at])
            self._note(damaged, _damaged_word())
        try:
            return array("q", values)
        except OverflowError:
            return array("q", [min(value, _MAX_NS) for value in values])

    def _note(self, indexes: Iterable[int], damage: Damaged) -> None:
        for at in indexes:
            self.damages[self.numbers[at]] = damage


def _unpack(word: int) -> int:
    # The same as format.unpack: 2**16 is 1 modulo the check's modulus.
    return word >> 16 if word & 0xFFFF == ((word >> 16) + PACK_SALT) % 0xFFFF else -1


def _damaged_word() -> Damaged:
    return Damaged("a word that was set later is damaged", 0)
