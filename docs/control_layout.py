"""Draws the layout of the control page for the reference: its fields, from control/layout.py."""

from __future__ import annotations

import re
from pathlib import Path

from distdbg.control import layout
from distdbg.record.format import EntryField

_TYPES = {"Q": "u64", "q": "i64"}


def control_layout_page() -> str:
    """Where what lies, then the fields of the first part."""
    comments = _comments()
    lines = [
        "# Control page layout",
        "",
        f"Version {layout.VERSION}: {layout.PAGE_NBYTES:,} bytes, little endian, `control-<host>` in the",
        "run folder. What it is for and how it is read: [the control page](control-page.md).",
        "",
        "| offset | bytes | |",
        "|---|---|---|",
        f"| 0 | {layout.PAGE_HEAD_NBYTES} | the fields below |",
        f"| {layout.ABORT_OFFSET} | {layout.MAX_ABORT_NBYTES} | the words of an abort, JSON |",
        f"| {layout.BREAK_OFFSET} | {layout.MAX_BREAK_NBYTES} | the armed breakpoints, JSON |",
        f"| {layout.HOLDS_OFFSET} | {layout.MAX_HOLDS * layout.HOLD_NBYTES} | who holds the clock:"
        f" {layout.MAX_HOLDS} entries of {layout.HOLD_NBYTES} bytes |",
        "",
        "| offset | type | name | |",
        "|---|---|---|---|",
        *(
            f"| {field.offset} | {_type(field)} | `{name}` | {comments.get(name, '')} |"
            for name, field in layout.PAGE.items()
        ),
        "",
        "An entry of those who hold the clock is `pid`, `start_ticks`, `rank` and `since_ns`, each i64;",
        "`since_ns` is 0 in an empty one. `rank` is -1 for the user's pause, -2 for another host of the job.",
        "",
        f"`magic` is {layout.MAGIC:#018x}, the bytes `distdbgC`. `abort_state` is",
        f"{layout.ABORT_NONE} (none), {layout.ABORT_WRITING} (being written) or {layout.ABORT_SET} (set).",
    ]
    return "\n".join(lines) + "\n"


def _type(field: EntryField) -> str:
    return _TYPES.get(field.code) or f"{field.code[:-1]} bytes"


def _comments() -> dict[str, str]:
    """The comments behind the fields."""
    text = Path(layout.__file__).read_text(encoding="utf-8")
    return dict(re.findall(r'^    "(\w+)": EntryField\(.*\),  # (.*)$', text, re.MULTILINE))
