"""Opens any mix of files and folders of a job as sessions, one per start.

    open_paths(["runs/0412"])                     a run of ours
    open_paths(["host1/0412", "host2/0412"])      the same, by what each host has of it
    open_paths(["dumps/", "logs/", "dmesg.txt"])  a torch job: dumps give the ops, logs the messages
    open_paths(["ras.json"])                      an output of ncclras

The first bytes of a file decide what it is, not its name. What cannot be read goes into `Session.lacks`; it
is an error only when nothing can be used. Links to folders are not followed, and only regular files are
opened.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Final

from distdbg.diagnose.load import log_files, ncclras, torch_dump, torch_dumps
from distdbg.diagnose.load.log_facts import LoggedFact
from distdbg.diagnose.load.log_lines import attempt_of
from distdbg.diagnose.load.run_folder import group_runs, is_run, load_runs
from distdbg.diagnose.load.torch_names import rank_of_file
from distdbg.diagnose.session import Session
from distdbg.errors import RecordError, UsageError
from distdbg.record.regular_file import open_regular

_MAX_DEPTH: Final = 12
_MAX_FILES: Final = 100_000
#: Dumps kept in memory; with more, the files are read twice.
_MAX_IN_MEMORY: Final = 32
_HEAD_NBYTES: Final = 65536
#: Share of control characters in a head: with more, the file is no text.
_MAX_CONTROL: Final = 0.05

AnyPath = str | os.PathLike[str]


class _Sort(Enum):
    DUMP = auto()
    RAS = auto()
    LOG = auto()
    OTHER = auto()


@dataclass(slots=True)
class _Found:
    """The files of one start of a job that is not ours."""

    dumps: list[Path] = field(default_factory=list)
    reports: list[Path] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)


def open_paths(
    paths: Sequence[AnyPath], *, ranks: Mapping[Path, int] | None = None
) -> list[Session]:
    """All sessions in these paths, the starts of one job in their order.

    Args:
        ranks: of dumps whose names do not end in their rank.

    UsageError for a path that is not there, RecordError when nothing can be used.
    """
    runs: list[Path] = []
    others: list[Path] = []
    for given in paths:
        path = Path(given)
        if not os.path.lexists(path):
            raise UsageError(
                f"{path}: no such file or folder",
                hint="distdbg ps lists the runs that are alive",
            )
        found = list(_runs(path))
        runs += found
        if not found:
            others.append(path)
    sessions = [load_runs(folders) for folders in group_runs(runs)]
    if others:
        sessions += _open_others(others, ranks or {}, list(sessions))
    return sessions


def _runs(path: Path) -> Iterator[Path]:
    """The run itself, or the runs in a folder of runs."""
    if is_run(path):
        yield path
    elif path.is_dir():
        try:
            with os.scandir(path) as found:
                inner = sorted(entry.path for entry in found if entry.is_dir(follow_symlinks=False))
        except OSError:
            return
        yield from (Path(folder) for folder in inner[:1000] if is_run(folder))


# ------------------------------------------------------------------------------- what is not ours


def _open_others(
    paths: Sequence[Path], ranks: Mapping[Path, int], runs: Sequence[Session]
) -> list[Session]:
    """Sessions of what is not ours; logs beside one run of ours are of that run."""
    lacks: list[str] = []
    starts: dict[int | None, _Found] = defaultdict(_Found)
    was_named = set(paths)
    for path in _files(paths, lacks):
        try:
            sort = _sort_of(path)
        except OSError as error:
            lacks.append(f"{path} cannot be read: {error.strerror or error}")
            continue
        found = starts[attempt_of(path)]
        if sort is _Sort.DUMP or path in ranks:
            found.dumps.append(path)
        elif sort is _Sort.RAS:
            found.reports.append(path)
        elif sort is _Sort.LOG:
            found.logs.append(path)
        elif rank_of_file(path.name) is not None and not path.suffix and not path.stat().st_size:
            lacks.append(f"{path} is empty: its rank ended before it wrote its dump")
        elif path in was_named:
            lacks.append(f"{path} is not a record, dump or text")
    root = paths[0] if len(paths) == 1 and paths[0].is_dir() else Path(os.path.commonpath(paths))
    if len(runs) == 1 and not any(found.dumps or found.reports for found in starts.values()):
        logs = [path for found in starts.values() for path in found.logs]
        _add_logs(runs[0], logs, root, lacks)
        runs[0].lacks += lacks
        return []
    sessions = _sessions(starts, root, ranks, lacks)
    useful = [session for session in sessions if session.ranks or session.said or session.lines]
    if not useful and not runs:
        names = ", ".join(str(path) for path in paths[:4])
        raise RecordError(
            f"{names}: no run found here",
            path=str(paths[0]),
            details=lacks[:8],
            hint="give the folder of a run, torch's flight-recorder dumps, or logs of the job",
        )
    for session in useful[:1]:
        session.lacks += lacks
    return useful


def _sessions(
    starts: Mapping[int | None, _Found], root: Path, ranks: Mapping[Path, int], lacks: list[str]
) -> list[Session]:
    """One per start. What is in the folder of no start belongs to the last."""
    numbers = sorted(number for number in starts if number is not None)
    if numbers and None in starts:
        loose, last = starts[None], starts[numbers[-1]]
        last.dumps += loose.dumps
        last.reports += loose.reports
        last.logs += loose.logs
    order: list[int | None] = list(numbers) or list(starts)
    sessions = []
    for number in order:
        session = _join(starts[number], root, ranks, lacks)
        session.attempt = number or 0
        session.attempts = max(1, (numbers[-1] + 1) if numbers else 1)
        sessions.append(session)
    return sessions


def _join(found: _Found, root: Path, ranks: Mapping[Path, int], lacks: list[str]) -> Session:
    """Dumps give the ops, logs and reports what was said."""
    session = Session(source=str(root), format=log_files.FORMAT)
    dumps = []
    for path in found.dumps:
        try:
            read = torch_dump.read_dumps(path, rank=ranks.get(path))
            if len(read) == 1 and len(found.dumps) > _MAX_IN_MEMORY:
                read[0].lighten()
            dumps += read
        except RecordError as error:
            lacks.append(error.what)
    if dumps:
        session = torch_dumps.to_session(dumps)
    for path in found.reports:
        try:
            report = ncclras.read_ras(path)
        except RecordError as error:
            lacks.append(error.what)
            continue
        session.said += report.said
        session.lacks += report.lacks
        session.world_size = max(session.world_size, report.world_size)
        if not dumps:
            session.format = report.format
            session.ranks.update(report.ranks)
    _add_logs(session, found.logs, root, lacks)
    return session


def _add_logs(session: Session, logs: Sequence[Path], root: Path, lacks: list[str]) -> None:
    facts: list[LoggedFact] = []
    for path in logs:
        try:
            facts += log_files.facts_of_file(path, root)
        except OSError as error:
            lacks.append(f"{path} cannot be read: {error.strerror or error}")
    if facts:
        log_files.add_facts(session, facts)


def _files(paths: Sequence[Path], lacks: list[str]) -> Iterator[Path]:
    """Every regular file below, in order; the paths themselves may be links."""
    left = _MAX_FILES
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, folders, names in os.walk(path):
            depth = len(Path(folder).parts) - len(path.parts)
            folders.sort()
            if depth >= _MAX_DEPTH:
                folders.clear()
            for name in sorted(names):
                if left <= 0:
                    lacks.append(f"{path} has more than {_MAX_FILES} files: the rest was not read")
                    return
                left -= 1
                if not name.startswith("."):
                    yield Path(folder, name)


def _sort_of(path: Path) -> _Sort:
    """Tell the format by the first bytes. OSError when it is no file, or cannot be read."""
    with open_regular(path) as file:
        head = file.read(_HEAD_NBYTES) or b""
    if ncclras.looks_like_ras(head):
        return _Sort.RAS
    if torch_dump.looks_like_dump(head):
        return _Sort.DUMP
    if not head:
        return _Sort.OTHER
    control = sum(head.count(bytes([c])) for c in (0, 1, 2, 3, 4, 5, 6, 14, 15, 16, 255))
    return _Sort.OTHER if control > _MAX_CONTROL * len(head) else _Sort.LOG
