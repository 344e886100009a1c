"""Hints: what to do about a root cause, in one line. Pure."""

from __future__ import annotations

import signal
from typing import Final

from distdbg.launch.root_cause import Part, RootCause

_CRASHES: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)


def hint_of(found: RootCause) -> str:
    """The hint for the first of those that failed; '' where nothing can be advised."""
    first = found.first[0]
    error, end = first.error, first.end
    if error is not None and error.hint:
        return error.hint
    if found.part is Part.LEAVER:
        hints = (one.error.hint for one in found.victims if one.error is not None)
        return next(filter(None, hints), "")
    if end.cause == "oom" or first.reason.startswith("MemoryError"):
        return "smaller batches, fewer ranks on this host, or more memory"
    if not first.reason and end.signal == signal.SIGKILL:
        return (
            f"the sender of SIGKILL is unknown; if it was the kernel, dmesg on {end.host} says so"
        )
    if not first.reason and end.signal == signal.SIGTERM:
        return "SIGTERM came from outside: from a scheduler that stops the job, or a person"
    if not first.reason and end.signal == signal.SIGBUS:
        return (
            f"often /dev/shm or a disk is full; see df on {end.host}; "
            "or a file of the run folder was cut short"
        )
    if not first.reason and end.signal in _CRASHES:
        return "@distdbg.record on main(), or PYTHONFAULTHANDLER=1, prints where the crash was"
    if not first.reason and end.cause == "exited" and found.part is Part.CAUSE:
        return "@distdbg.record on main() brings its traceback here"
    if not first.reason and first.record is not None:
        return f"python -m distdbg.record {first.record.path}"
    return ""
