"""native/core/record_layout.hpp and distdbg/record/format.py are one layout."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest

from distdbg.native import Recorder
from distdbg.ops.call import Kind
from distdbg.record import entries, format
from distdbg.record.format import EntryField, EventType, Flag, Section, checksum, pack, unpack

HEADER_FILE = Path(__file__).parents[2] / "native" / "core" / "record_layout.hpp"
CODES = {
    "std::uint8_t": "B",
    "std::uint32_t": "I",
    "std::int32_t": "i",
    "std::uint64_t": "Q",
    "std::int64_t": "q",
    "char": "s",
    "RecordSection": "16s",
    "WaitEntry": "32s",
}
STRUCTS = {
    "RecordHeader": format.HEADER,
    "RecordState": format.STATE,
    "GroupEntry": format.GROUP,
    "CounterEntry": format.COUNTER,
    "FormEntry": format.FORM,
    "SiteEntry": format.SITE,
    "TextEntry": format.TEXT,
    "OpEntry": format.OP,
    "WaitEntry": format.WAIT,
}
COUNTS = {"section_count": len(Section), "bucket_count": format.BUCKET_COUNT}
COUNTS["wait_count"] = format.WAIT_COUNT


def native_text() -> str:
    return HEADER_FILE.read_text()


def members(name: str) -> tuple[dict[str, EntryField], int]:
    """The members of a struct of the header but for its padding, and its size.

    Its static_asserts say that the compiler adds no padding; so offsets are sums.
    """
    body = re.search(rf"struct {name} \{{(.*?)\n\}};", native_text(), re.DOTALL)
    assert body is not None
    fields, offset = {}, 0
    for kind, member, count in re.findall(
        r"^  ([\w:]+) (\w+)(?:\[(\w+)\])?;", body[1], re.MULTILINE
    ):
        code = CODES[kind]
        nbytes = struct.calcsize("<" + ("1s" if code == "s" else code))
        assert offset % min(nbytes, 8) == 0, f"{member} would be padded"
        if count:
            nbytes *= COUNTS.get(count) or int(count)
            code = f"{nbytes}s"
        if not member.startswith("padding"):
            fields[member] = EntryField(offset, code)
        offset += nbytes
    return fields, offset


@pytest.mark.parametrize("name", STRUCTS)
def test_every_field_lies_where_the_other_language_has_it(name: str) -> None:
    fields, nbytes = members(name)
    assert fields == STRUCTS[name]
    short = name.removeprefix("Record").removesuffix("Entry").upper()
    assert nbytes == getattr(format, f"{short}_NBYTES")


def test_the_compiler_has_the_same_sizes() -> None:
    sizes = Recorder.layout()
    assert sizes == {name: getattr(format, f"{name}_NBYTES") for name in sizes}
    assert set(sizes) >= {
        "HEADER",
        "STATE",
        "GROUP",
        "COUNTER",
        "FORM",
        "SITE",
        "TEXT",
        "OP",
        "WAIT",
    }


def test_constants_are_the_same() -> None:
    text = native_text().replace("'", "")
    numbers = {
        name: int(value, 0)
        for name, value in re.findall(r"^constexpr [\w:]+ (\w+) = (\w+);", text, re.MULTILINE)
    }
    assert numbers["record_magic"] == format.MAGIC
    assert numbers["record_version"] == format.VERSION
    assert numbers["record_byte_order"] == format.BYTE_ORDER
    assert numbers["bucket_count"] == format.BUCKET_COUNT
    assert numbers["wait_count"] == format.WAIT_COUNT
    assert numbers["flag_async"] == Flag.ASYNC
    assert numbers["flag_message"] == Flag.MESSAGE
    assert numbers["flag_aside"] == Flag.ASIDE
    assert numbers["flag_end_noticed"] == Flag.END_NOTICED
    assert numbers["flag_end_queued"] == Flag.END_QUEUED


def test_enums_are_the_same() -> None:
    text = native_text()
    sections = re.search(r"enum class SectionId .*?\{(.*?)\}", text, re.DOTALL)
    assert sections is not None
    assert re.findall(r"\w+", sections[1]) == [section.name.lower() for section in Section]
    types = re.search(r"enum class EventType .*?\{(.*?)\}", text, re.DOTALL)
    assert types is not None
    assert {name.upper(): int(value) for name, value in re.findall(r"(\w+) = (\d+)", types[1])} == {
        kind.name: kind.value for kind in EventType
    }
    assert [kind.label for kind in Kind] == list(entries.KIND_LABELS)


def test_the_words_of_a_native_record_are_packed_and_checked_alike(tmp_path: Path) -> None:
    path = tmp_path / "rank00003.ddr"
    recorder = Recorder.create(
        os.fsencode(path), 3, 4, "n14", "boot", "1.2", "3.12", "run", '["a"]', 16
    )
    text = recorder.add_text(b"nobody")
    recorder.set_exit(3, text)
    data = path.read_bytes()
    assert checksum(data[:4088]) == int.from_bytes(data[4088:4096], "little")
    word = int.from_bytes(data[4096 + format.STATE["exit"].offset :][:8], "little")
    assert word == pack(3)
    assert unpack(word) == 3
