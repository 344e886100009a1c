"""Finds what ranks have printed: the log folders of `distdbg run`, of torchrun, or below either.

<run>/logs/attempt_0/<local rank>/stdout.log          of one host
<run>/logs/<host>/attempt_0/<local rank>/stdout.log   of several that share the folder
<run>/logs.elsewhere                                  names the folder that --log-dir made
<log dir>/<id>_<chance>/attempt_0/<local rank>/...    what --log-dir made, torchrun's as well
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from distdbg.launch.output_streams import StdStreams
from distdbg.launch.outputs.folders import ELSEWHERE, LOG_NAMES
from distdbg.record.folders import LOGS, attempts
from distdbg.record.line_times import LineTimes, read_line_times


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """What one rank has written to one stream, in one start of the job."""

    path: Path
    rank: int
    attempt: int
    stream: StdStreams
    times: LineTimes | None = None


def find_kept(folder: Path, *, known: Container[Path] = ()) -> list[KeptFile]:
    """All files but `known` ones, by attempt, rank and stream.

    Where the rank is not known, it is the local one.
    """
    found: dict[Path, KeptFile] = {}
    for root in _roots(folder):
        for attempt in attempts(root):
            number = attempt.name.rpartition("_")[2]
            if attempt == root or not number.isdecimal():
                continue
            for file in _files(attempt, int(number), known):
                found.setdefault(file.path, file)
    return sorted(found.values(), key=lambda file: (file.attempt, file.rank, file.stream))


def _files(attempt: Path, number: int, known: Container[Path]) -> Iterator[KeptFile]:
    for local in _folders(attempt):
        if not local.name.isdecimal():
            continue
        paths = {stream: local / name for stream, name in LOG_NAMES.items()}
        new = {s: path for s, path in paths.items() if path not in known and path.is_file()}
        times = {stream: read_line_times(path) for stream, path in new.items()}
        rank = next((one.rank for one in times.values() if one is not None), int(local.name))
        for stream, path in new.items():
            yield KeptFile(path=path, rank=rank, attempt=number, stream=stream, times=times[stream])


def _roots(folder: Path) -> list[Path]:
    """The folders that hold attempts with logs."""
    logs = [folder / LOGS, *_folders(folder / LOGS)]
    for path in sorted(folder.glob(f"{LOGS}*{ELSEWHERE}")):
        try:
            logs.append(Path(os.fsdecode(path.read_bytes()[:4096])))
        except OSError:
            continue
    if any(root.is_dir() for root in logs):
        return logs
    if attempts(folder) != [folder]:
        return [folder]
    # What --log-dir was given: each job has a folder of its own there; the newest counts.
    jobs = [inner for inner in _folders(folder) if attempts(inner) != [inner]]
    return [max(jobs, key=lambda job: job.stat().st_mtime_ns)] if jobs else []


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return sorted(folder / entry.name for entry in found if entry.is_dir())
    except OSError:
        return []
