"""Which run a command line means: a path, a name of a run of this user or its beginning, or the latest."""

from __future__ import annotations

from pathlib import Path

from distdbg.errors import UsageError
from distdbg.record.folders import LATEST, list_runs, user_folder


def find_run(text: str | None) -> Path:
    """Return the path; UsageError when there is none."""
    if text is None or text == LATEST:
        latest = user_folder() / LATEST
        if not latest.exists():
            raise UsageError("this user has no run", hint="name the folder of one")
        return latest
    path = Path(text)
    if path.exists() or "/" in text:
        return path
    fitting = [run for run in list_runs() if run.name.startswith(text)]
    if len(fitting) == 1 or (fitting and fitting[0].name == text):
        return fitting[0]
    if fitting:
        names = [run.name for run in fitting[:8]]
        raise UsageError(f"{text!r} fits {len(fitting)} runs", details=names)
    raise UsageError(f"no run {text!r}: no such path, and no run of this user")
