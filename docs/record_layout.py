"""Draws the layout of a record for the reference: tables from format.py, and one entry in hex."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from distdbg.record import format as layout
from distdbg.record.format import OP_NBYTES, EntryField, Section
from tests.support.record_examples import build_short

_TYPES = {"B": "u8", "I": "u32", "i": "i32", "Q": "u64", "q": "i64"}

#: Heading, table, bytes of an entry, what is to be said about it.
_TABLES: tuple[tuple[str, dict[str, EntryField], int, str], ...] = (
    ("Header", layout.HEADER, layout.HEADER_NBYTES, "Written once."),
    ("State", layout.STATE, layout.STATE_NBYTES, "Words that change; at `header_nbytes`."),
    ("Wait", layout.WAIT, layout.WAIT_NBYTES, "32 of them, at `waits` of the state."),
    ("Group", layout.GROUP, layout.GROUP_NBYTES, "A ring. What follows `check` changes."),
    ("Counter", layout.COUNTER, layout.COUNTER_NBYTES, "Nothing checks it; `group` 0: not used."),
    ("Form", layout.FORM, layout.FORM_NBYTES, "A ring. JSON, see below."),
    ("Site", layout.SITE, layout.SITE_NBYTES, "Entry 0 is never used."),
    ("String", layout.STRING, 8, "Then the bytes, padded to 8."),
    ("Text", layout.TEXT, layout.TEXT_NBYTES, "A ring. JSON."),
    ("Event", layout.OP, layout.OP_NBYTES, "A ring. What follows `check` is PACKED and set later."),
)


def layout_page() -> str:
    """All tables, then the entry of one op, byte by byte."""
    comments = _comments()
    lines = [
        "# Record layout",
        "",
        f"Format {layout.VERSION}, in numbers. What they are for: [record format](record-format.md).",
        "Everything is little endian; offsets are bytes from the beginning of the entry.",
        "",
        "| section | | entry, bytes |",
        "|---|---|---|",
        *(
            f"| {section.name.lower()} | {section.value} | {_nbytes(section)} |"
            for section in Section
        ),
        "",
    ]
    for heading, fields, nbytes, about in _TABLES:
        lines += [f"## {heading}", "", f"{nbytes:,} bytes. {about}", ""]
        lines += ["| offset | type | name | |", "|---|---|---|---|"]
        for name, field in fields.items():
            about = comments.get((heading, name), "")
            lines.append(f"| {field.offset} | {_type(field)} | `{name}` | {about} |")
        lines.append("")
    lines += ["## An op in hex", "", *_example(), ""]
    return "\n".join(lines).rstrip() + "\n"


def _type(field: EntryField) -> str:
    return _TYPES.get(field.code) or f"{field.code[:-1]} bytes"


def _nbytes(section: Section) -> int:
    names = {"GROUPS": "GROUP", "COUNTERS": "COUNTER", "FORMS": "FORM", "SITES": "SITE"}
    names |= {"TEXTS": "TEXT", "PARKED": "PARKED", "RING": "OP"}
    name = names.get(section.name)
    return getattr(layout, f"{name}_NBYTES") if name else 1


def _comments() -> dict[tuple[str, str], str]:
    """The comments behind the fields, by heading and name."""
    found = {}
    heading = name = ""
    for line in Path(layout.__file__).read_text(encoding="utf-8").splitlines():
        if table := re.match(r"([A-Z]+): Final = \{", line):
            heading = {"OP": "Event"}.get(table[1], table[1].capitalize())
        if field := re.match(r'\s+"(\w+)": EntryField\(', line):
            name = field[1]
        if name and (comment := re.search(r"# (.*)$", line)):
            found[heading, name] = comment[1].replace("|", "\\|").replace("<", "&lt;")
        if line == "}":
            name = ""
    return found


def _example() -> list[str]:
    build = build_short()
    offset = build.offset_of(Section.RING, 2)
    data = build.to_bytes()[offset : offset + OP_NBYTES]
    fields = layout.OP.items()
    lines = [
        f"Number 2 of `build_short()` in `tests/support/record_examples.py`, at {offset:,}: an",
        "all_reduce that was issued at 1,000 ns, started 100 ns later and ended after 250 ns.",
        "",
        "```text",
    ]
    for start in range(0, OP_NBYTES, 8):
        word = data[start : start + 8]
        inside = [
            f"{name} {struct.unpack_from('<' + field.code, data, field.offset)[0]:,}"
            for name, field in fields
            if start <= field.offset < start + 8
        ]
        if start >= layout.OP["started"].offset:
            value = layout.unpack(int.from_bytes(word, "little"))
            inside = [inside[0].split()[0] + (f" {value}" if any(word) else " not set")]
        lines.append(f"{start:3}  {word.hex(' ')}  {', '.join(inside)}")
    return [*lines, "```"]
