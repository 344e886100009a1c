"""The control page as bytes: makes a fresh one, and reads one. Pure; layout.py has the layout."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from distdbg.control import layout
from distdbg.control.holds import Hold, holds_from
from distdbg.control.layout import ABORT_NONE, ABORT_WRITING, PAGE, PAGE_NBYTES
from distdbg.control.words import AbortWords
from distdbg.errors import RecordError

_RUN_NBYTES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlState:
    """What a page says at one moment."""

    run: str
    is_paused: bool
    paused_since_ns: int
    """When the pause began, by the monotonic clock; 0 without one."""
    paused_ns: int
    """All pauses so far, the one that lasts included."""
    abort: AbortWords | None
    rules: bytes
    """The armed breakpoints, JSON; empty: none."""
    agent_pid: int
    agent_beat_ns: int
    holds: tuple[Hold, ...] = ()
    """The holds on the clock, the longest first; there are none while it runs."""


def get_field(data: bytes, name: str) -> int:
    field = PAGE[name]
    value: int = struct.unpack_from("<" + field.code, data, field.offset)[0]
    return value


def run_of(data: bytes) -> str:
    start = PAGE["run"].offset
    return data[start : start + _RUN_NBYTES].split(b"\0")[0].decode("utf-8", "replace")


def run_as_read(run: str) -> str:
    """The name of a run as it comes back from a page."""
    return fit_run(run).decode("utf-8", "replace")


def fit_run(run: str) -> bytes:
    return run.encode("utf-8", "replace")[:_RUN_NBYTES]


def fresh_page(run: str) -> bytes:
    data = bytearray(PAGE_NBYTES)
    for name, value in (("magic", layout.MAGIC), ("version", layout.VERSION)):
        struct.pack_into("<Q", data, PAGE[name].offset, value)
    text = fit_run(run)
    data[PAGE["run"].offset : PAGE["run"].offset + len(text)] = text
    return bytes(data)


def parse_page(data: bytes, now_ns: int) -> ControlState:
    clock = get_field(data, "clock")
    abort: AbortWords | None = None
    if get_field(data, "abort_state") not in (ABORT_NONE, ABORT_WRITING):
        nbytes = min(get_field(data, "abort_nbytes"), layout.MAX_ABORT_NBYTES)
        abort = AbortWords.from_json(data[layout.ABORT_OFFSET : layout.ABORT_OFFSET + nbytes])
    rules = b""
    if get_field(data, "break_generation") % 2 == 0:
        nbytes = min(get_field(data, "break_nbytes"), layout.MAX_BREAK_NBYTES)
        rules = data[layout.BREAK_OFFSET : layout.BREAK_OFFSET + nbytes]
    return ControlState(
        run=run_of(data),
        is_paused=clock < 0,
        paused_since_ns=get_field(data, "paused_since_ns") if clock < 0 else 0,
        paused_ns=clock if clock >= 0 else max(now_ns - ~clock, 0),
        abort=abort,
        rules=rules,
        agent_pid=get_field(data, "agent_pid"),
        agent_beat_ns=get_field(data, "agent_beat_ns"),
        holds=holds_from(data),
    )


def check_page(data: bytes, path: Path, run: str) -> None:
    if len(data) != PAGE_NBYTES or get_field(data, "magic") != layout.MAGIC:
        raise unusable(path, "is not a control page, or is damaged")
    version = get_field(data, "version")
    if version != layout.VERSION:
        raise unusable(path, f"has version {version}; this distdbg knows version {layout.VERSION}")
    theirs = data[PAGE["run"].offset :][:_RUN_NBYTES].rstrip(b"\0")
    if run and theirs != fit_run(run):
        raise unusable(path, f"belongs to the run '{run_of(data)}', which is still running")


def unusable(path: Path, why: str) -> RecordError:
    """What is said of a page that cannot be used."""
    return RecordError(f"control page {path}: {why}", path=str(path))
