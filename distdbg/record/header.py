"""Reads the first two pages: what wrote the record, where its sections lie, the state of the rank.

All that follows trusts the table of sections, so it is checked here against the size of a record.
"""

from __future__ import annotations

import json
import struct
import time
from dataclasses import dataclass
from typing import Any, Final

from distdbg.errors import RecordError
from distdbg.record.entries import RecordHeader
from distdbg.record.format import (
    BYTE_ORDER,
    COUNTER_NBYTES,
    FORM_NBYTES,
    GROUP_NBYTES,
    HEADER,
    HEADER_NBYTES,
    MAGIC,
    MAX_RECORD_NBYTES,
    OP_NBYTES,
    PARKED_NBYTES,
    SECTION,
    SITE_NBYTES,
    STATE_NBYTES,
    TEXT_NBYTES,
    VERSION,
    EntryField,
    Section,
    checksum,
)
from distdbg.record.source import ByteSource

LEAST_ENTRY_NBYTES: Final = {
    Section.GROUPS: GROUP_NBYTES,
    Section.COUNTERS: COUNTER_NBYTES,
    Section.FORMS: FORM_NBYTES,
    Section.SITES: SITE_NBYTES,
    Section.STRINGS: 1,
    Section.TEXTS: TEXT_NBYTES,
    Section.PARKED: PARKED_NBYTES,
    Section.RING: OP_NBYTES,
}
_MAX_ENTRY_NBYTES: Final = 1 << 16


class EntryLayout:
    """The fields of one kind of entry, read by one call."""

    __slots__ = ("_names", "_struct")

    def __init__(self, fields: dict[str, EntryField]) -> None:
        code, end = "<", 0
        for field in fields.values():
            code += f"{field.offset - end}x{field.code}"
            end = field.offset + struct.calcsize("<" + field.code)
        self._names = tuple(fields)
        self._struct = struct.Struct(code)

    def read(self, data: bytes) -> dict[str, Any]:
        """The values by name; text with its padding."""
        return dict(zip(self._names, self._struct.unpack_from(data), strict=True))


_HEADER: Final = EntryLayout(HEADER)


def read_padded(data: bytes) -> str:
    """NUL-padded UTF-8; what is no UTF-8 is shown as escapes."""
    return data.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class SectionTable:
    """Where a section lies."""

    offset: int
    count: int
    entry_nbytes: int


#: Where each section of a record is.
SectionTables = dict[Section, SectionTable]


@dataclass(frozen=True, slots=True)
class HeaderParts:
    """The header, and what only the reader needs of it."""

    header: RecordHeader
    state_offset: int
    tables: SectionTables
    #: With salvage a header may be used though its check is wrong.
    is_whole: bool


def read_opening(source: ByteSource, *, salvage: bool = False) -> HeaderParts:
    """Read and check the header; RecordError when this file cannot be read by this version."""
    page = source.read(0, HEADER_NBYTES)
    path = source.path
    if len(page) < 16 or page[:8] != MAGIC.to_bytes(8, "little"):
        what = "is empty" if not page else "is not a record of distdbg"
        raise RecordError(f"{path} {what}", path=path)
    if page[12:16] == BYTE_ORDER.to_bytes(4, "big"):
        raise RecordError(
            f"{path} was written on a machine of the other byte order", path=path, offset=12
        )
    is_whole = len(page) == HEADER_NBYTES and (
        checksum(page[:-8]) == int.from_bytes(page[-8:], "little")
    )
    _check_version(path, page, is_whole)
    if len(page) < HEADER_NBYTES:
        raise RecordError(
            f"{path} is cut short: {len(page):,} bytes of a header of {HEADER_NBYTES:,}",
            path=path,
            offset=len(page),
        )
    if not is_whole and not salvage:
        raise RecordError(
            f"{path} is damaged: the check of its header is wrong",
            path=path,
            details=["nothing was read"],
            hint="salvage=True reads what is intact",
        )
    values = _HEADER.read(page)
    state_offset = values["header_nbytes"]
    tables = _read_tables(path, values["sections"], state_offset, values["total_nbytes"])
    if source.nbytes < state_offset + STATE_NBYTES:
        raise RecordError(
            f"{path} is cut short: {source.nbytes:,} bytes of {values['total_nbytes']:,}",
            path=path,
            offset=source.nbytes,
        )
    header = RecordHeader(
        version=values["version"],
        rank=values["rank"],
        world_size=values["world_size"],
        pid=values["pid"],
        process_start=values["process_start"],
        wall_ns=values["wall_ns"],
        monotonic_ns=values["monotonic_ns"],
        host=read_padded(values["host"]),
        boot_id=read_padded(values["boot_id"]),
        distdbg_version=read_padded(values["distdbg_version"]),
        python_version=read_padded(values["python_version"]),
        run=read_padded(values["run"]),
        argv=_read_argv(values["argv"]),
    )
    return HeaderParts(header, state_offset, tables, is_whole)


def _check_version(path: str, page: bytes, is_whole: bool) -> None:
    version = int.from_bytes(page[8:12], "little")
    if version == VERSION:
        return
    details = ["nothing was read"]
    if is_whole:
        # The writer's name and the clock have kept their places so far.
        values = _HEADER.read(page)
        try:
            day = time.strftime("%Y-%m-%d", time.gmtime(values["wall_ns"] // 10**9))
        except (OSError, OverflowError, ValueError):
            day = "an invalid date"
        writer = read_padded(values["distdbg_version"]) or "an unnamed version"
        details = [f"written by distdbg {writer} on {day}; nothing was read"]
    raise RecordError(
        f"{path} was written with format {version}; this distdbg reads format {VERSION}",
        path=path,
        offset=8,
        details=details,
        hint="use the distdbg that wrote it",
    )


def _read_tables(path: str, rows: bytes, state_offset: int, total: int) -> SectionTables:
    if not HEADER_NBYTES <= state_offset <= _MAX_ENTRY_NBYTES or state_offset % 8:
        raise _impossible(path, f"a header of {state_offset:,} bytes", HEADER["header_nbytes"])
    if total > MAX_RECORD_NBYTES:
        raise _impossible(path, f"{total:,} bytes in all", HEADER["total_nbytes"])
    tables = {}
    for section, row in zip(Section, struct.iter_unpack(SECTION, rows), strict=True):
        offset, count, nbytes = row
        least = LEAST_ENTRY_NBYTES[section]
        is_sized = nbytes == 1 if least == 1 else least <= nbytes <= _MAX_ENTRY_NBYTES
        is_placed = offset >= state_offset + STATE_NBYTES and offset + count * nbytes <= total
        if not is_sized or not is_placed or not count or offset % 8 or nbytes % 8 > (nbytes == 1):
            what = f"{count:,} {section.name.lower()} of {nbytes:,} bytes at {offset:,}"
            raise _impossible(path, what, HEADER["sections"])
        tables[section] = SectionTable(offset, count, nbytes)
    return tables


def _impossible(path: str, what: str, field: EntryField) -> RecordError:
    return RecordError(
        f"{path} is damaged: its header names {what}", path=path, offset=field.offset
    )


def _read_argv(data: bytes) -> tuple[str, ...]:
    try:
        argv = json.loads(data.rstrip(b"\0"))
    except (ValueError, RecursionError):
        return ()
    if not isinstance(argv, list):
        return ()
    return tuple(word for word in argv if isinstance(word, str))
