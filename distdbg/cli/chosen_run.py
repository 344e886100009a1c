"""Which run a command line means: a path, a name of a run of this user or its beginning, or the latest."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.errors import DistError, RecordError, UsageError
from distdbg.record.folders import LATEST, list_runs, user_folder

if TYPE_CHECKING:
    from distdbg.diagnose.session import Session


def add_live_run(parser: argparse.ArgumentParser) -> None:
    """The argument of a command that asks the agents of a job."""
    about = "which run, also HOST:PORT or ssh://HOST/RUN; not needed for the only one"
    parser.add_argument("run", nargs="?", metavar="RUN", help=about)


def find_run(text: str | None) -> Path:
    """Return the path; UsageError when there is none, RecordError when it may not be read."""
    if text is None or text == LATEST:
        latest = user_folder() / LATEST
        elsewhere = _running_elsewhere(latest)
        if elsewhere is not None:
            return elsewhere
        if not latest.exists():
            raise UsageError("no run of this user on this host", hint="give the folder of a run")
        return latest.resolve()
    if not text:
        raise UsageError("the name of the run is empty")
    path = Path(text)
    try:
        is_there = path.exists()
        if path.is_dir():
            with os.scandir(path) as files:
                next(files, None)
    except OSError as error:  # of another user, most likely
        raise RecordError(f"{text}: {error.strerror}", path=text) from None
    if is_there or "/" in text:
        return path
    fitting = [run for run in list_runs() if run.name.startswith(text)]
    if len(fitting) == 1 or (fitting and fitting[0].name == text):
        return fitting[0]
    if fitting:
        from distdbg.record.run_summary import summarize_runs

        raise UsageError(
            f"{text!r} fits {len(fitting)} runs",
            details=summarize_runs(fitting),
            hint="give more of the name, or 'latest'",
        )
    raise UsageError(
        f"no run {text!r}: no such path, and no run of this user",
        hint=f"runs of this user are in {user_folder()}",
    )


def _running_elsewhere(latest: Path) -> Path | None:
    """The newest job of this user, where it runs, and its records are in a folder that the user chose."""
    from distdbg.client.feed.connections import newest_run
    from distdbg.client.live_runs import find_live_runs
    from distdbg.record.host import host_name

    newest = newest_run(find_live_runs(host_name()))
    if newest is None or newest.folder is not None or newest.socket is None:
        return None
    try:
        is_older = latest.exists() and latest.stat().st_ctime_ns > newest.socket.stat().st_ctime_ns
        if is_older:
            return None
        with newest.connect() as agent:
            folder = Path(agent.ask("about")["run_folder"])
    except (DistError, OSError):
        return None  # it ends at this moment
    return folder if folder.is_dir() else None


def load_chosen(paths: Sequence[Path], *, attempt: int | None = None) -> Session:
    """One start of a run: one of ours, by its folders, or the last of what another tool has dumped."""
    from distdbg.diagnose.load.open import open_paths
    from distdbg.diagnose.load.run_folder import is_run, load_runs

    if all(is_run(path) for path in paths) or attempt is not None:
        return load_runs(paths, attempt=attempt)
    return open_paths(paths)[-1]
