"""The last output of ranks, where the launcher kept it: the log part of a report.

    <run>/logs/attempt_0/<local rank>/stderr.log          of one host
    <run>/logs/<host>/attempt_0/<local rank>/stderr.log   of several that share the folder
    <run>/logs.elsewhere                                  names the folder that --log-dir made

Of each rank only the last lines of each stream, of those first that did not end well. The rank is in
the file of times beside the log; without one it is the local rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from distdbg.diagnose.session import LogLine, RankLog, Session
from distdbg.record.folders import LOGS, attempt_number, attempts
from distdbg.record.line_times import read_rank

_STREAMS: Final = ("stdout.log", "stderr.log")
_ERROR: Final = "error.json"
_ELSEWHERE: Final = ".elsewhere"
_MAX_RANKS: Final = 64
_MAX_LINES: Final = 40
_MAX_NBYTES: Final = 16 << 10
_MAX_LETTERS: Final = 400


def add_kept_output(session: Session, folders: Sequence[Path]) -> None:
    """Put the last lines of the ranks into `session.lines`; `folders` are those of this start."""
    files: dict[int, list[Path]] = {}
    for folder in folders:
        for rank, path in _find(folder, session.attempt):
            files.setdefault(rank, []).append(path)
    known = [rank for rank in files if rank in session.ranks]
    known.sort(key=lambda rank: (not _failed(session.ranks[rank]), rank))
    for rank in sorted(known[:_MAX_RANKS]):
        for path in sorted(files[rank], key=lambda path: _STREAMS.index(path.name)):
            host = session.ranks[rank].host
            session.lines += [
                LogLine(text=text, source=source, rank=rank, host=host)
                for source, text in _last_lines(path)
            ]


def error_files(folders: Sequence[Path], attempt: int) -> Iterator[Path]:
    """The error files of the ranks of this start."""
    for folder in folders:
        for local in _local_folders(folder, attempt):
            if (path := local / _ERROR).is_file():
                yield path


def _failed(log: RankLog) -> bool:
    return log.end.is_failure if log.end is not None else bool(log.exit_what)


def _find(folder: Path, attempt: int) -> Iterator[tuple[int, Path]]:
    for local in _local_folders(folder, attempt):
        yield from _files(local)


def _local_folders(folder: Path, attempt: int) -> Iterator[Path]:
    run = folder if attempt_number(folder) is None else folder.parent
    for root in _roots(run):
        for start in attempts(root):
            if start == root or attempt_number(start) != attempt:
                continue
            yield from (local for local in _folders(start) if local.name.isdecimal())


def _files(local: Path) -> Iterator[tuple[int, Path]]:
    paths = [path for name in _STREAMS if (path := local / name).is_file()]
    ranks = [read_rank(path) for path in paths]
    rank = next((one for one in ranks if one is not None), int(local.name))
    for path in paths:
        yield rank, path


def _roots(run: Path) -> list[Path]:
    roots = [run / LOGS, *_folders(run / LOGS)]
    for path in sorted(run.glob(f"{LOGS}*{_ELSEWHERE}")):
        try:
            roots.append(Path(os.fsdecode(path.read_bytes()[:4096].rstrip(b"\n"))))
        except (OSError, ValueError):
            continue
    return [root for root in roots if _folders(root)]


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return sorted(folder / entry.name for entry in found if entry.is_dir())
    except (OSError, ValueError):
        return []


def _last_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Place and text of each; nothing of what cannot be read. Places are counted only in short files."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = file.seek(max(size - _MAX_NBYTES, 0))
            lines = file.read(_MAX_NBYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return
    if begin and len(lines) > 1:
        del lines[0]  # its beginning is not there
    first = max(len(lines) - _MAX_LINES, 0)
    for at, line in enumerate(lines[first:], first + 1):
        place = path.name if begin else f"{path.name}:{at}"
        yield place, line[:_MAX_LETTERS]
