"""The text of a line of source beside its place. A record names the file, and a record may be a stranger's:

    below the reader's folder    a record cannot have other files shown, in a page that is mailed on, say
    a regular .py file           no device, pipe, or file of the kernel, also not by a link
    at most 1 MiB                ... and never waited for
    not newer than the run       an edited file would show another line

All else has no text. What is shown is one printable line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.session import Session, Stack
from distdbg.diagnose.wording import short_site
from distdbg.record.printable import printable, shorten
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.regular_file import open_regular
from distdbg.render.enclosing import (
    CallParameter,
    ParsedSource,
    argument_origin,
    cached,
    enclosing,
    parse,
    short_circuited,
)
from distdbg.render.loop_exits import loop_exits
from distdbg.render.notes import NoteRequest
from distdbg.render.swallowed import swallowers

_MAX_NBYTES: Final = 1 << 20
_MAX_FILES: Final = 64
_MAX_LINES: Final = 3
#: Frames of a stack of which more than the line is told.
_MAX_NOTED: Final = 4
#: File systems count coarser than clocks.
_GRAIN_NS: Final = 10**7


class SourceLines:
    """The source files of one run, each read once."""

    def __init__(self, folder: str, newest_ns: int) -> None:
        """folder: where the reader is, '' for no source at all; newest_ns: wall time of the run."""
        self._root = os.path.realpath(folder) if folder else ""
        self._newest_ns = newest_ns + _GRAIN_NS
        self._files: dict[str, list[str]] = {}
        self._parsed: dict[str, ParsedSource | None] = {}

    def text_of(self, frame: RecordedFrame, most: int) -> str:
        """In at most so many letters; '' where there is none to be shown."""
        lines = self._lines_of(frame.file)
        if not 0 < frame.line <= len(lines) or most < 4:
            return ""
        return shorten(printable(lines[frame.line - 1].strip()), most)

    def notes_of(self, frames: Stack, at: int, wanted: NoteRequest) -> list[str]:
        """Describe what stands around the line of one frame, and where an argument is from."""
        source = self.parsed(frames[at].file) if at < _MAX_NOTED else None
        if source is None:
            return []
        notes = enclosing(source, frames[at].line)
        if at and len(notes) > 1 and notes[0].startswith("in "):
            del notes[1:]  # of who called the function the innermost loop is enough
        called = frames[at - 1].function.rpartition(".")[2] if at else ""
        line = frames[at].line
        notes += filter(None, [short_circuited(source, line, called), cached(source, line)])
        if wanted.exits:
            notes += loop_exits(source, frames[at].line)
            notes += swallowers(self.parsed, frames[at].file, line)
        if not wanted.origin:
            return notes
        origin: str | CallParameter | None = None
        for inner in range(at + 1):
            known = self.parsed(frames[inner].file)
            is_passed = inner == 0 or isinstance(origin, CallParameter)
            if known is None or not is_passed:
                return notes
            callee = origin if isinstance(origin, CallParameter) else None
            origin = argument_origin(known, frames[inner].line, wanted.first, callee)
        return [*notes, origin] if isinstance(origin, str) else notes

    def parsed(self, file: str) -> ParsedSource | None:
        """None where it may not be shown, or is no Python."""
        if file not in self._parsed:
            lines = self._lines_of(file)
            self._parsed[file] = parse(lines) if lines else None
        return self._parsed[file]

    def _lines_of(self, file: str) -> list[str]:
        if file not in self._files:
            if len(self._files) >= _MAX_FILES:
                return []
            self._files[file] = self._read(file)
        return self._files[file]

    def _read(self, file: str) -> list[str]:
        if not self._root or not os.path.isabs(file) or "\0" in file:
            return []
        try:
            path = os.path.realpath(file)
            if not path.endswith(".py") or os.path.commonpath([path, self._root]) != self._root:
                return []
            with open_regular(Path(path)) as opened:
                about = os.fstat(opened.fileno())
                if about.st_size > _MAX_NBYTES or about.st_mtime_ns > self._newest_ns:
                    return []
                return opened.read(_MAX_NBYTES).decode(errors="replace").split("\n")
        except (OSError, ValueError):
            return []


def source_of(session: Session, folder: str) -> SourceLines:
    """For the ranks of a session, of files that were as they are when the first of them began."""
    began = [
        session.time_ns(log.rank, log.began_ns) for log in session.ranks.values() if log.began_ns
    ]
    return SourceLines(folder, min(began, default=session.now_ns))


def lines_of(
    session: Session, finding: Finding, source: SourceLines, width: int
) -> Iterator[tuple[RecordedFrame, str]]:
    """The lines that a finding names and that have a text, each once, in the order of its evidence.

    For findings without stacks to be shown. A place that two files could be is none.
    """
    wanted = dict.fromkeys(fact.site for fact in finding.evidence if fact.site)
    frames: dict[str, set[RecordedFrame]] = {site: set() for site in wanted}
    for stack in session.stacks if wanted else ():
        for frame in stack:
            known = frames.get(short_site(str(frame)))
            if known is not None:
                known.add(frame)
    reported = (found for found in frames.values() if len(found) == 1)
    lines = ((frame, source.text_of(frame, width)) for found in reported for frame in found)
    yield from islice(((frame, text) for frame, text in lines if text), _MAX_LINES)


def with_whole_name(frame: RecordedFrame, known: Iterable[RecordedFrame]) -> RecordedFrame:
    """A place that has the last part of its file's name only, with the name that others give that file.

    As it is where files of two folders have that name.
    """
    if os.path.isabs(frame.file):
        return frame
    found = {one.file for one in known if os.path.basename(one.file) == frame.file}
    return frame._replace(file=found.pop()) if len(found) == 1 else frame
