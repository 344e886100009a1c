"""Stacks of a process, and parsers for py-spy and faulthandler. Pure.

py-spy dump --json     reads the process's memory: Python and, with --native, the frames below
faulthandler           the process itself writes, in a signal handler: Python frames only
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One frame; a native one has a library as its file and often no line."""

    function: str
    file: str
    line: int
    is_native: bool = False

    def __str__(self) -> str:
        name = os.path.basename(self.file)
        if self.is_native:
            return f"{self.function} ({name})" if name else self.function
        return f"{name}:{self.line} ({self.function})"


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread, its innermost frame first."""

    frames: tuple[StackFrame, ...]
    name: str = ""
    thread_id: int | None = None
    """The kernel's number."""
    holds_gil: bool | None = None
    is_active: bool | None = None
    """Whether it was on a core; None: not known."""
    is_main: bool = False

    @property
    def python(self) -> tuple[StackFrame, ...]:
        return tuple(frame for frame in self.frames if not frame.is_native)

    @property
    def inner(self) -> tuple[StackFrame, ...]:
        """The native frames that the innermost Python frame has called."""
        found = []
        for frame in self.frames:
            if not frame.is_native:
                break
            found.append(frame)
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStacks:
    """The threads of one rank, or why there are none."""

    rank: int
    pid: int
    threads: tuple[ThreadStack, ...] = ()
    has_native: bool = False
    how: str = ""
    """'py-spy', 'faulthandler'; '' when neither answered."""
    why_not: str = ""

    @property
    def main(self) -> ThreadStack | None:
        return next((t for t in self.threads if t.is_main), None)

    @property
    def gil_holder(self) -> ThreadStack | None:
        return next((t for t in self.threads if t.holds_gil), None)


def read_py_spy(text: bytes, pid: int) -> tuple[ThreadStack, ...]:
    """What `py-spy dump --json` printed; ValueError for anything else."""
    found: Any = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(thread, dict) for thread in found):
        raise ValueError("not a list of threads")
    threads = []
    for thread in found:
        frames = tuple(
            StackFrame(
                function=str(frame.get("name", "?")),
                file=str(frame.get("filename") or ""),
                line=int(frame.get("line") or 0),
                is_native=frame.get("module") is not None,
            )
            for frame in thread.get("frames", ())
        )
        os_id = thread.get("os_thread_id")
        threads.append(
            ThreadStack(
                frames=_without_start(frames),
                name=str(thread.get("thread_name") or ""),
                thread_id=os_id,
                holds_gil=bool(thread.get("owns_gil")),
                is_active=bool(thread.get("active")),
                is_main=os_id == pid or thread.get("thread_name") == "MainThread",
            )
        )
    return tuple(threads)


_THREAD: Final = re.compile(r"^(Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent")
_FRAME: Final = re.compile(r'^  File "(.*)", line (\d+|\?+) in (.*)$')


def read_faulthandler(text: str) -> tuple[ThreadStack, ...]:
    """What faulthandler wrote, once. The main thread is the one that it names last."""
    heads: list[str] = []
    stacks: list[list[StackFrame]] = []
    for line in text.splitlines():
        head = _THREAD.match(line)
        if head:
            heads.append(head[3] or "")
            stacks.append([])
            continue
        frame = _FRAME.match(line)
        if frame and stacks:
            number = int(frame[2]) if frame[2].isdecimal() else 0
            stacks[-1].append(StackFrame(frame[3], frame[1], number))
    last = len(stacks) - 1
    return tuple(
        ThreadStack(frames=tuple(frames), name=name, is_main=index == last)
        for index, (name, frames) in enumerate(zip(heads, stacks, strict=True))
    )


def find_site(frames: tuple[StackFrame, ...], own_package: str) -> StackFrame | None:
    """The innermost Python frame of the program itself: not of a library, unless there is no other."""
    python = [frame for frame in frames if not frame.is_native]
    for frame in python:
        if not _is_library(frame.file, own_package):
            return frame
    return python[0] if python else None


def _is_library(file: str, own_package: str) -> bool:
    return (
        file.startswith("<frozen")
        or "/site-packages/" in file
        or "/dist-packages/" in file
        or re.search(r"/lib(64)?/python3\.\d+/", file) is not None
        or bool(own_package and file.startswith(own_package + os.sep))
    )


def _without_start(frames: tuple[StackFrame, ...]) -> tuple[StackFrame, ...]:
    """Without what is below the first Python frame of a thread: the same in all processes."""
    last = max((i for i, frame in enumerate(frames) if not frame.is_native), default=len(frames))
    return frames[: last + 1]
