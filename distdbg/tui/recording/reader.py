"""A recorded dashboard as entries, as far as it can be read: cut, damaged and foreign files too."""

from __future__ import annotations

import json
import os
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from distdbg.errors import RecordError
from distdbg.record.regular_file import open_regular
from distdbg.tui.recording.written import VERSION

_GZIP: Final = b"\x1f\x8b"
_HEAD: Final = re.compile(rb'\s*\{\s*"distdbg"\s*:\s*"dashboard"')
_ENTRY: Final = re.compile(rb'\{"at":\s*([0-9.eE+-]+),\s*"(full|set|log|bars|end)"')
#: Bytes of text that are read at most.
_MAX_NBYTES: Final = 2 << 30
_CHUNK: Final = 1 << 20


@dataclass(slots=True)
class Recording:
    run: str = ""
    title: str = ""
    snapshots: list[tuple[float, bool, bytes]] = field(default_factory=list)
    """When, whether it is a whole one, and the line; in the order of time."""
    log: list[bytes] = field(default_factory=list)
    bars: list[bytes] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    """What is not there, in sentences."""


def is_recording(path: Path) -> bool:
    """Whether a file is one, by its first bytes; False for what cannot be read."""
    try:
        with open_regular(path) as file:
            head = file.read(4096)
    except OSError:
        return False
    return _HEAD.match(_start(head)) is not None


def _start(head: bytes) -> bytes:
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(31).decompress(head, 4096)
    except zlib.error:
        return b""


def read_recording(path: Path) -> Recording:
    """RecordError when it is none, or one of a later version."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            text, is_whole = _text(file.read(min(size, _MAX_NBYTES)))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}", path=str(path)) from None
    first, *lines = text.split(b"\n")
    head = read_entry(first)
    if head is None or head.get("distdbg") != "dashboard":
        raise RecordError(f"{path} is not a recorded dashboard", path=str(path))
    version = head.get("version")
    if version != VERSION:
        raise RecordError(
            f"{path} was recorded in version {version}; this distdbg reads version {VERSION}",
            path=str(path),
            hint="use the distdbg that wrote it",
        )
    found = Recording(run=str(head.get("run", "")), title=str(head.get("title", "")))
    # Behind the last end of a line is nothing, or a line that was cut.
    ended = _sort(lines[:-1], found)
    if not found.snapshots:
        raise RecordError(f"{path} has nothing to show: it was cut off at once", path=str(path))
    if not is_whole or not ended:
        found.lacks.append("the file was cut off: its end is missing")
    elif ended == "full":
        found.lacks.append("the recording ended when its file was full")
    return found


def _text(data: bytes) -> tuple[bytes, bool]:
    """Unpacked, as far as that goes."""
    if not data.startswith(_GZIP):
        return data, True
    unpack, parts, total = zlib.decompressobj(31), [], 0
    for at in range(0, len(data), _CHUNK):
        try:
            parts.append(unpack.decompress(data[at : at + _CHUNK]))
        except zlib.error:
            return b"".join(parts), False
        total += len(parts[-1])
        if total > _MAX_NBYTES:
            return b"".join(parts), False
    return b"".join(parts), unpack.eof


def _sort(lines: list[bytes], found: Recording) -> str:
    """Put lines where they belong; returns how the recording ended, '' when that is not there."""
    ended, unreadable, last = "", 0, float("-inf")
    for line in lines:
        if not line:
            continue
        entry = _ENTRY.match(line)
        if entry is None or not line.endswith(b"}"):
            unreadable += 1
            continue
        try:
            at = float(entry[1])
        except ValueError:
            unreadable += 1
            continue
        match entry[2]:
            case b"full" | b"set":
                if at >= last:  # a clock that was set back
                    last = at
                found.snapshots.append((last, entry[2] == b"full", line))
            case b"log":
                found.log.append(line)
            case b"bars":
                found.bars.append(line)
            case b"end":
                ended = "full" if b'"full"' in line else "closed"
    if unreadable:
        found.lacks.append(f"{unreadable:,} lines of the file cannot be read")
    while found.snapshots and not found.snapshots[0][1]:
        del found.snapshots[0]
    return ended


def read_entry(line: bytes) -> dict[str, Any] | None:
    """One line; None for what is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
