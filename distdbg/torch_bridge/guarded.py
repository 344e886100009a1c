"""Errors of ours end the watching, and not the program."""

from __future__ import annotations

from typing import Any

from distdbg.ops.sites import warn_at_call_site

#: The tap of this process, and whether it was switched off.
state: dict[str, Any] = {"job": None, "off": False}


class guarded:
    """In this block errors of ours end the watching; those in `but` are the program's, and raised."""

    def __init__(self, what: str, but: tuple[type[Exception], ...] = ()) -> None:
        self._what = what
        self._but = but

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception) or isinstance(error, self._but):
            return False
        switch_off(f"{self._what}: {type(error).__name__}: {error}".splitlines()[0])
        return True


def switch_off(why: str) -> None:
    """Let the job run on without us, on all ranks; says so once on each."""
    if state["off"]:
        return
    job = state["job"]
    state["off"] = True
    if job is not None:
        job.stop(why)
    warn_at_call_site(f"distdbg does not watch this torch job: {why}", RuntimeWarning)
