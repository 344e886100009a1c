"""native/core/control.hpp and distdbg/control/layout.py are one layout."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

from distdbg.control import layout
from distdbg.control.page import ControlPage
from distdbg.control.words import AbortWords
from distdbg.native import Control
from distdbg.record.format import EntryField

HEADER_FILE = Path(__file__).parents[2] / "native" / "core" / "control.hpp"
CODES = {"std::uint64_t": "Q", "std::int64_t": "q", "char": "s"}


def test_every_field_lies_where_the_other_language_has_it() -> None:
    body = re.search(r"struct ControlPage \{(.*?)\n\};", HEADER_FILE.read_text(), re.DOTALL)
    assert body is not None
    fields, offset = {}, 0
    for kind, name, count in re.findall(
        r"^  (?:std::atomic<)?([\w:]+)>? (\w+)(?:\[(\d+)\])?;", body[1], re.MULTILINE
    ):
        code, many = CODES[kind], int(count or 1)
        if not name.startswith("padding"):
            fields[name] = EntryField(offset, f"{many}s" if code == "s" else code)
        offset += many * struct.calcsize("<" + code)
    assert fields == layout.PAGE
    assert offset == layout.PAGE_HEAD_NBYTES <= layout.ABORT_OFFSET


def test_constants_are_the_same() -> None:
    text = HEADER_FILE.read_text().replace("'", "")
    numbers = {
        name: int(value, 0)
        for name, value in re.findall(r"^constexpr [\w:]+ (\w+) = (\w+);", text, re.MULTILINE)
    }
    assert numbers == {
        "control_magic": layout.MAGIC,
        "control_version": layout.VERSION,
        "control_nbytes": layout.PAGE_NBYTES,
        "abort_offset": layout.ABORT_OFFSET,
        "max_abort_nbytes": layout.MAX_ABORT_NBYTES,
        "break_offset": layout.BREAK_OFFSET,
        "max_break_nbytes": layout.MAX_BREAK_NBYTES,
        "holds_offset": layout.HOLDS_OFFSET,
        "hold_nbytes": layout.HOLD_NBYTES,
        "max_holds": layout.MAX_HOLDS,
        "abort_set": layout.ABORT_SET,
    }


def test_what_python_writes_native_code_reads(tmp_path: Path) -> None:
    page = ControlPage.open(tmp_path, "n14", "run")
    control = Control(os.fsencode(page.path), "run")
    assert not control.is_aborted
    assert page.job_ns() <= control.job_ns <= page.job_ns()
    page.pause()
    assert control.job_ns == page.job_ns()
    page.resume()
    words = AbortWords(what="rank 3 is dead")
    page.abort(words)
    assert control.is_aborted
    assert control.words.encode() == words.to_json()
    page.close()
