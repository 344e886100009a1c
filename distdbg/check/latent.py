"""Latent errors: mistakes that have done no harm yet, reported once per line by the rank itself.

    leaked work     the Work of an asynchronous op that nobody waited for      latent_errors/unwaited.py
    buffer race     an array that two ops in flight share, or that changed     latent_errors/unwaited.py
    leaked group    groups made by one line that nobody can destroy any more   latent_errors/abandoned.py

Each is a Python warning at the line of the call, and a finding in the record of the rank. At level DETAIL
only. A rank that ends by an error stays silent: what it left behind is a consequence.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from dis import opname
from types import CodeType, FrameType
from typing import Final, NamedTuple

from distdbg.native import Recorder
from distdbg.ops.sites import UNKNOWN, shorten, skipped_folders
from distdbg.record.known_marks import SOURCE_DROPPED
from distdbg.record.writing import write_finding

#: More lines than a program has; what comes after them is neither counted nor told.
_MAX_LINES: Final = 64


class LatentWarning(UserWarning):
    """The program has a mistake that has done no harm yet: unwaited Work, shared buffers, leaked groups."""


class CodeLine(NamedTuple):
    """A line of the program, kept as it is until somebody wants to read it."""

    code: CodeType
    lasti: int

    @property
    def file(self) -> str:
        """With its whole path."""
        return self.code.co_filename

    @property
    def line(self) -> int:
        """Its number in the file."""
        for begin, end, line in self.code.co_lines():
            if begin <= self.lasti < end:
                return line or self.code.co_firstlineno
        return self.code.co_firstlineno

    def __str__(self) -> str:
        """'/home/me/train.py:88 (step)'."""
        return f"{self.code.co_filename}:{self.line} ({self.code.co_qualname})"


class RecordedPlace(NamedTuple):
    """A line of the program as text, as the record has it."""

    text: str
    """'/home/me/train.py:88 (step)'."""

    @property
    def file(self) -> str:
        """With its whole path."""
        return self.text.rpartition(" (")[0].rpartition(":")[0]

    @property
    def line(self) -> int:
        """Its number in the file."""
        number = self.text.rpartition(" (")[0].rpartition(":")[2]
        return int(number) if number.isdecimal() else 0

    def __str__(self) -> str:
        return self.text


#: The fields of a CodeLine, as a plain tuple: made at every asynchronous op, and mostly not needed.
CodePosition = tuple[CodeType, int]


def position_above(depth: int) -> CodePosition | None:
    """The innermost line of the program (see ops/sites.py), from `depth` callers up; None: there is none."""
    frame: FrameType | None = sys._getframe(depth)
    ours = skipped_folders()
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(ours):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def line_above(depth: int) -> CodeLine | None:
    """The line of `position_above`."""
    position = position_above(depth + 1)
    return None if position is None else CodeLine(*position)


def is_result_dropped(place: CodeLine) -> bool:
    """Whether the call that `place` is in the middle of is a statement of its own."""
    code = place.code.co_code
    at = place.lasti + 2
    while at < len(code) and opname[code[at]] == "CACHE":
        at += 2
    return at < len(code) and opname[code[at]] == "POP_TOP"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentFinding:
    """One latent error, as one rank knows it."""

    type: str
    """'LeakedWork', 'LeakedGroup', 'BufferRace'."""
    kind: str
    """The op: 'all_reduce'; '' for a group."""
    group: str
    what: str
    """The first line, without the rank: 'the Work of all_reduce on group 'world' was dropped'."""
    begun: str
    """What happened at `place`: 'started it', 'made them'."""
    place: CodeLine | RecordedPlace | None
    others: Sequence[tuple[str, CodeLine | RecordedPlace | None]] = ()
    """What happened elsewhere, and where: ('dropped its Work', place)."""
    hint: str = ""
    record_group: int = 0
    times: int = 1


class LatentErrors:
    """The latent errors of one rank."""

    def __init__(self, rank: int, recorder: Recorder | None) -> None:
        self.rank = rank
        #: Whether the level is DETAIL.
        self.is_on = False
        self._recorder = recorder
        self._reported: dict[tuple[str, str, str], LatentFinding] = {}
        #: How often each was written into the record.
        self._written: dict[tuple[str, str, str], int] = {}
        #: Lines that receive from any rank, which were looked at.
        self._deaf: set[str] = set()
        self._pid = os.getpid()

    def report(self, fact: LatentFinding) -> None:
        """Count it; the first time for its line, warn and record it."""
        if self._pid != os.getpid():
            return  # a fork has copies of all, which its parent waits for
        key = (fact.type, fact.kind, str(fact.place))
        before = self._reported.get(key)
        if before is not None:
            self._reported[key] = replace(before, times=max(before.times + 1, fact.times))
            return
        if len(self._reported) >= _MAX_LINES:
            return
        self._reported[key] = fact
        self._write(key, fact)
        self._warn(fact)

    def note_dropped_source(self, place: CodeLine | None) -> None:
        """A line receives from any rank and does not ask from which: matters if messages race."""
        site = str(place)
        if place is None or self._recorder is None or len(self._deaf) >= _MAX_LINES:
            return
        if site not in self._deaf and self._pid == os.getpid() and is_result_dropped(place):
            write_finding(self._recorder, 0, 0, {"type": SOURCE_DROPPED, "what": site})
        self._deaf.add(site)

    def recorded_place(self, site: int) -> RecordedPlace | None:
        """What the record calls this site; None for none."""
        recorder = self._recorder
        text = recorder.site_words(site) if recorder is not None and site else ""
        return RecordedPlace(text) if text else None

    def close(self) -> None:
        """Write how often each happened; nothing is told from here on."""
        self.is_on = False
        for key, fact in self._reported.items():
            if fact.times > self._written[key]:
                self._write(key, fact)
        self._recorder = None

    def _write(self, key: tuple[str, str, str], fact: LatentFinding) -> None:
        self._written[key] = fact.times
        if self._recorder is None:
            return
        facts: dict[str, object] = {
            "type": fact.type,
            "what": fact.what,
            "group": fact.group,
            "kind": fact.kind,
            "ranks": [self.rank],
            "how": f"{fact.times} times" if fact.times > 1 else "",
            "details": _details(fact, self.rank),
            "hint": fact.hint,
        }
        write_finding(self._recorder, fact.record_group, 0, facts)

    def _warn(self, fact: LatentFinding) -> None:
        first, *rest = _details(fact, self.rank)
        lines = [f"rank {self.rank}: {fact.what}", first, *rest, f"hint: {fact.hint}"]
        text = "\n  ".join(lines)
        if fact.place is None:
            warnings.warn(text, LatentWarning, stacklevel=2)
            return
        # Once per line is kept here: Python's own registries do not tell ranks in threads apart.
        warnings.warn_explicit(text, LatentWarning, fact.place.file, fact.place.line, registry={})


def _details(fact: LatentFinding, rank: int) -> list[str]:
    """'rank 0 started it at train.py:88 (step)'."""
    reported = [(fact.begun, fact.place), *fact.others]
    sites = [UNKNOWN if place is None else str(place) for _, place in reported]
    short = shorten(sites)
    return [
        f"rank {rank} {text} at {short[site]}"
        for (text, _), site in zip(reported, sites, strict=True)
    ]
