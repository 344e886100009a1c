"""One line about a run of this host: script, age and ranks, for lists of runs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from distdbg.errors import DistError, format_ranks
from distdbg.record.durations import age_text
from distdbg.record.entries import RecordHeader
from distdbg.record.folders import attempts
from distdbg.record.header import read_opening
from distdbg.record.printable import printable
from distdbg.record.source import ByteSource

#: Among more runs nobody chooses by reading.
_LIMIT: Final = 8
_MAX_SCRIPT: Final = 40


def summarize_runs(folders: Sequence[Path], *, now_ns: int | None = None) -> list[str]:
    """'20261123-1201-ab  train.py, 4 ranks, 3 min 20 s ago', the newest first."""
    newest = list(reversed(folders))
    lines = [summarize_run(folder, now_ns=now_ns) for folder in newest[:_LIMIT]]
    more = len(newest) - len(lines)
    return [*lines, f"... and {more} older runs"] if more else lines


def summarize_run(folder: Path, *, now_ns: int | None = None) -> str:
    """The same of one run; its name alone where its records do not tell more."""
    facts = [fact for fact in facts_of_run(folder, now_ns=now_ns) if fact]
    return printable(f"{folder.name}  {', '.join(facts)}" if facts else folder.name)


def facts_of_run(folder: Path, *, now_ns: int | None = None) -> tuple[str, str, str]:
    """Script, ranks, age: 'train.py', '4 ranks', '3 min 20 s ago'; '' for what is not known."""
    now_ns = time.time_ns() if now_ns is None else now_ns
    last = attempts(folder)
    records = sorted(last[-1].glob("rank*.ddr")) if last else []
    header = _any_header(records)
    if header is None:
        return "", "", ""
    here = [int(one.stem[4:]) for one in records if one.stem[4:].isdecimal()]
    ranks = f"{header.world_size} rank{'' if header.world_size == 1 else 's'}"
    if len(here) < header.world_size:
        ranks += f" ({format_ranks(here)} here)"
    return _script(header.argv), ranks, age_text((now_ns - header.wall_ns) / 1e9)


def world_size_of(folder: Path) -> int:
    """How many ranks a start of a job has, by the records in `folder`; 0: there are none."""
    header = _any_header(sorted(folder.glob("rank*.ddr")))
    return 0 if header is None else header.world_size


def _any_header(records: Sequence[Path]) -> RecordHeader | None:
    """Of the first record that can be read."""
    for path in records:
        try:
            with ByteSource(path) as source:
                return read_opening(source).header
        except (DistError, OSError, ValueError):
            continue
    return None


def _script(argv: Sequence[str]) -> str:
    """'train.py'; '' without one."""
    name = os.path.basename(argv[0]) if argv else ""
    return name if len(name) <= _MAX_SCRIPT else f"{name[: _MAX_SCRIPT - 4]} ..."
