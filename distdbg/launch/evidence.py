"""What is known of a rank that ended: how it ended, its error file, its record, the end of its stderr.

`gather` reads files; the dataclasses are plain values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from distdbg.launch.record_facts import RecordFacts
from distdbg.record.ends import RankEnd
from distdbg.record.error_file import ErrorFacts, read_error_file
from distdbg.record.folders import record_name
from distdbg.record.format import Exit
from distdbg.record.printed_stack import read_stack
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.regular_file import open_regular, read_some
from distdbg.record.stack_file import read_crash

_STDERR_NBYTES: Final = 4096
_STDERR_LINES: Final = 6
#: Errors in a record that name the rank to blame.
_CONSEQUENCES: Final = frozenset(("PeerLost", "RankLeft", "JobAborted", "DebuggerQuit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRankEvidence:
    """All that is known of one rank that is gone."""

    end: RankEnd
    error: ErrorFacts | None = None
    error_file: str = ""
    record: RecordFacts | None = None
    stderr_file: str = ""
    """Where its stderr was kept, if it was."""
    stderr_tail: tuple[str, ...] = ()
    crash: tuple[RecordedFrame, ...] = ()
    """Where it crashed in native code, with the callers: the innermost first; () where nobody knows."""

    @property
    def rank(self) -> int:
        return self.end.rank

    @property
    def failed_wall_ns(self) -> int:
        """When it failed: often a while before its process had ended."""
        known = [self.end.wall_ns]
        if self.error is not None and self.error.wall_ns:
            known.append(self.error.wall_ns)
        if self.record is not None and self.record.raised_wall_ns:
            known.append(self.record.raised_wall_ns)
        return min(known)

    @property
    def because_of(self) -> frozenset[int]:
        """The other ranks that it names as the cause."""
        named: tuple[int, ...] = ()
        if self.error is not None:
            named = self.error.because_of
        elif self.end.exit_code and self.record and self.record.error_type in _CONSEQUENCES:
            named = (
                self.record.error_ranks
            )  # it caught the error, and gave up with a code of its own
        return frozenset(named) - {self.rank}

    @property
    def waits_for(self) -> frozenset[int]:
        """The other ranks that did not come in time."""
        named: tuple[int, ...] = ()
        if self.error is not None:
            named = self.error.waits_for
        elif self.end.exit_code and self.record and self.record.error_type == "OpTimeout":
            named = self.record.error_ranks
        return frozenset(named) - {self.rank}

    @property
    def reason(self) -> str:
        """'ValueError: no data', all on one line; '' when it did not say any."""
        if self.error is not None:
            return self.error.first_line
        if self.record is not None and self.record.how is Exit.RAISED:
            return self.record.raised
        return ""

    @property
    def said(self) -> str:
        """The same without the type."""
        return self.reason.removeprefix(f"{self.error_type}: ")

    @property
    def error_type(self) -> str:
        """The type of what it raised: 'ValueError'; '' when it raised nothing."""
        if self.error is not None and self.error.type:
            return self.error.type
        return self.reason.partition(":")[0]

    @property
    def how(self) -> str:
        """'raised ValueError: no data', 'was killed by SIGSEGV', 'exited with code 3'."""
        if self.reason.startswith("SystemExit: "):
            return f"{self.end.how}: {self.reason.removeprefix('SystemExit: ')}"
        return f"raised {self.reason}" if self.reason else self.end.how


def gather(
    ends: Iterable[RankEnd],
    attempt_folder: Path,
    error_file: Callable[[int], Path | None],
    stderr_file: Callable[[int], Path | None] = lambda rank: None,
) -> list[LostRankEvidence]:
    """Read what there is about the ranks that ended; the two callables tell the files of a rank."""
    return [
        _gather_one(end, attempt_folder, error_file(end.rank), stderr_file(end.rank))
        for end in ends
    ]


def _gather_one(
    end: RankEnd, folder: Path, error_path: Path | None, stderr_path: Path | None
) -> LostRankEvidence:
    record = _read_record(folder / record_name(end.rank), end)
    error = read_error_file(error_path) if error_path is not None else None
    if error is not None and _is_handled(error, end, record):
        error = None
    tail = _tail(stderr_path) if stderr_path is not None and end.is_failure else ()
    crashed = end.cause == "signal" and not end.was_asked
    printed = (read_crash(folder, end.rank) or "\n".join(tail)) if crashed else ""
    return LostRankEvidence(
        end=end,
        error=error if end.is_failure else None,
        error_file=str(error_path) if error is not None else "",
        record=record,
        stderr_file=str(stderr_path) if tail else "",
        stderr_tail=tail,
        crash=read_stack(printed) if printed else (),
    )


def _is_handled(error: ErrorFacts, end: RankEnd, record: RecordFacts | None) -> bool:
    """Whether it is the error of a child process, and the rank itself ended in another way.

    A shell that waits for the program of the rank ends in its place: that has no record, and no such child.
    """
    if error.pid in (None, end.pid) or error.code is not None:
        return False
    if not error.is_of_child and record is None:
        return False
    has_own_end = record is not None and (bool(record.exit_call) or record.how is Exit.RAISED)
    return end.exit_code != 1 or has_own_end


def _read_record(path: Path, end: RankEnd) -> RecordFacts | None:
    if not os.path.exists(path):
        return None
    try:
        # The reader of records is a fifth of what a launcher would load, and most need none.
        from distdbg.launch.left_record import read_facts
    except (OSError, ImportError):
        # No file can be opened any more, or the package was replaced while the job ran.
        return None
    return read_facts(path, end)


def _tail(path: Path) -> tuple[str, ...]:
    try:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _STDERR_NBYTES))
            text = read_some(file, _STDERR_NBYTES).decode(errors="replace")
    except OSError:
        return ()
    return tuple(line.rstrip() for line in text.splitlines() if line.strip())[-_STDERR_LINES:]
