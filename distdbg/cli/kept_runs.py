"""The runs of this user on this host whose records are kept: `distdbg ps --all`."""

from __future__ import annotations

import sys

from distdbg import config
from distdbg.cli.table import print_table
from distdbg.record.durations import nbytes_text
from distdbg.record.folders import is_live_run, list_runs, nbytes_of, user_folder
from distdbg.record.run_summary import facts_of_run

HEADS = ("run", "state", "script", "ranks", "started", "size")


def print_kept_runs() -> None:
    """The newest first; then what all of them take, and when they are removed."""
    folders = list_runs()[::-1]
    sizes = [nbytes_of(folder) for folder in folders]
    rows = [
        (
            folder.name,
            "running" if is_live_run(folder) else "ended",
            *facts_of_run(folder),
            nbytes_text(size),
        )
        for folder, size in zip(folders, sizes, strict=True)
    ]
    days = config.read_int("DISTDBG_RUNS_DAYS")
    most = nbytes_text(config.read_int("DISTDBG_RUNS_NBYTES"))
    age = f", and after {days} days (DISTDBG_RUNS_DAYS)" if days > 0 else ""
    count, take = ("1 run", "takes") if len(rows) == 1 else (f"{len(rows)} runs", "take")
    if rows:
        print_table(f"{count} in {user_folder()}", HEADS, rows)
    sys.stdout.write(
        f"{count} {take} {nbytes_text(sum(sizes))}; the oldest are removed beyond {most} "
        f"(DISTDBG_RUNS_NBYTES){age}, when the next run starts\n"
    )
