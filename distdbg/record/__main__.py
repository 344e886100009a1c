"""Prints records: python -m distdbg.record [PATH] [--ops N] [--json]

PATH is a record, or a run by its folder or its name, or the beginning of that; without it, the latest run
of this user. Of a run that was started several times the last start is shown; `attempt_0` in its folder is
another. A record of a rank that runs is shown as it is at this moment; the rank is not asked and does not
wait.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from distdbg.command import run_command
from distdbg.count_argument import count
from distdbg.errors import RecordError, UsageError
from distdbg.record.entries import Event, Group, OpEntry, Record, label_of_kind
from distdbg.record.folders import LATEST, SUFFIX, attempts, is_live, list_runs, user_folder
from distdbg.record.printable import printable
from distdbg.record.rank_words import Clock, read_boot_id
from distdbg.record.reader import read_record
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.text import quantile_ns, render


def main(argv: Sequence[str], *, prog: str = "python -m distdbg.record") -> int:
    """Print; exit code 7 when any of the files cannot be read."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=(__doc__ or "").replace("python -m distdbg.record", prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH")
    parser.add_argument(
        "--ops", type=count, default=20, metavar="N", help="how many events to show (20)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    chosen = parser.parse_args(argv)
    try:
        paths = find_records(chosen.path)
    except RecordError as error:
        return _fail(error)
    code = 0
    documents = []
    is_first = True
    for path in paths:
        try:
            record = read_record(path, salvage=True)
        except RecordError as error:
            code = _fail(error)
            continue
        live = is_live(path)
        if chosen.json:
            documents.append(to_plain(record, is_live=live, most_events=chosen.ops))
            continue
        clock = Clock(record.header, time.monotonic_ns(), read_boot_id())
        lines = render(record, clock, is_live=live, most_events=chosen.ops)
        sys.stdout.write(("" if is_first else "\n") + "\n".join(lines) + "\n")
        is_first = False
    if chosen.json:
        sys.stdout.write(json.dumps({"records": documents}, indent=1) + "\n")
    return code


def find_records(path: Path | None) -> list[Path]:
    """The records that a command line means."""
    try:
        return _find_records(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise  # as of any command
        at = error.filename or path
        raise RecordError(f"{at} cannot be read: {error.strerror}", path=str(at)) from error


def _find_records(path: Path | None) -> list[Path]:
    if path is None:
        path = user_folder() / LATEST
        if not path.exists():
            raise UsageError("no run of this user on this host", hint="give the folder of a run")
    elif not path.exists() and path.name == str(path):
        path = _find_run(path.name) or path
    if not path.is_dir():
        return [path]
    with os.scandir(path):  # whatever looks for files by a pattern finds none where it may not look
        pass
    found = sorted(path.glob(f"*{SUFFIX}")) or sorted(attempts(path)[-1].glob(f"*{SUFFIX}"))
    if not found:
        raise RecordError(f"{path} holds no records (*{SUFFIX})", path=str(path))
    return found


def _find_run(name: str) -> Path | None:
    fitting = [run for run in list_runs() if run.name.startswith(name)]
    if len(fitting) > 1 and fitting[0].name != name:
        from distdbg.record.run_summary import summarize_runs

        details = summarize_runs(fitting)
        raise RecordError(f"{name!r} fits {len(fitting)} runs", path=name, details=details)
    return fitting[0] if fitting else None


def _fail(error: RecordError) -> int:
    for line in (f"RecordError: {error.what}", *(f"  {detail}" for detail in error.details)):
        sys.stderr.write(printable(line) + "\n")
    return error.exit_code


def to_plain(record: Record, *, is_live: bool, most_events: int) -> dict[str, Any]:
    """Return a dict of the whole record, with `most_events` of its events, the last ones."""
    events = sorted(record.events, key=lambda event: event.number)
    in_flight = [op for op in record.ops if op.ended_ns is None]
    return {
        "path": record.path,
        "is_live": is_live,
        "header": _plain(record.header),
        "state": _plain(record.state),
        "groups": [
            {**_fields(group), "progress": _plain(record.progress.get(group.number))}
            for group in record.groups
        ],
        "counters": [
            {
                **_fields(counter),
                "kind": label_of_kind(counter.kind) or counter.kind,
                "p50_ns": quantile_ns(counter.duration_buckets, 0.5),
                "p99_ns": quantile_ns(counter.duration_buckets, 0.99),
            }
            for counter in record.counters
        ],
        "in_flight": [_event(op) for op in in_flight],
        "events": [_event(event) for event in (events[-most_events:] if most_events else [])],
        "gaps": _plain(record.gaps),
    }


def _event(event: Event) -> dict[str, Any]:
    values = {"type": type(event).__name__.removesuffix("Entry"), **_fields(event)}
    group = getattr(event, "group", None)
    if isinstance(group, Group):
        values["group"] = group.number  # groups are told once
    if isinstance(event, OpEntry):
        values |= {"name": event.name, "kind": event.kind_label, "status": event.status_label}
    return values


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, RecordedFrame):
        return value._asdict()
    if isinstance(value, Enum):
        return value.name.lower()
    if dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    return value


if __name__ == "__main__":
    sys.exit(run_command(lambda: main(sys.argv[1:])))
