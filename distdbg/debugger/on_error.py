"""Holds a rank at an uncaught exception, before the other ranks learn that it leaves.

A failure caused by another rank is not held: that other rank is the one to debug.
"""

from __future__ import annotations

import bdb
import sys
from collections.abc import Callable
from types import TracebackType

from distdbg.debugger.identity import rank_of
from distdbg.debugger.stopping import is_at_prompt, open_prompt
from distdbg.errors import CollectiveError, DebuggerQuit, JobAborted, PeerLost, format_error
from distdbg.log.logs import get_logger
from distdbg.record.printable import shorten
from distdbg.runtime.process.world import observed, use

_log = get_logger("debugger")
_MARK = "_distdbg_held"

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


class HoldingHook:
    """A sys.excepthook around the one that was there."""

    def __init__(self, before: _Hook) -> None:
        self._before = before

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Hold first: what comes after may end the process."""
        if not hasattr(sys, "ps1"):  # at Python's own prompt nothing ends
            hold(error)
        self._before(kind, error, trace)


def hold_uncaught() -> None:
    """From now on the main thread is held at what nobody catches."""
    if not isinstance(sys.excepthook, HoldingHook):
        sys.excepthook = HoldingHook(sys.excepthook)


def hold(error: BaseException) -> bool:
    """Open the debugger where `error` was raised; whether it did. Each exception is held once."""
    world = observed()
    if world.default is None or is_at_prompt() or not is_own(error) or hasattr(error, _MARK):
        return False
    try:
        setattr(error, _MARK, True)
    except AttributeError:
        return False  # an exception that takes no attribute would be held again and again
    try:
        with use(world):
            open_prompt(f"at {_first_line(error)}", error=error)
    except KeyboardInterrupt:
        pass  # the job is ended; so does the rank, by what it was held at
    except Exception:  # noqa: BLE001 - the exception that ends the rank must not be lost for another one
        _log.exception("the debugger failed", rank=rank_of(world))
    return True


def is_own(error: BaseException | None) -> bool:
    """Whether it is a failure of this rank's program, and not what the failure of another has caused."""
    while error is not None:
        if not isinstance(error, Exception):
            return False
        if isinstance(error, (JobAborted, PeerLost, DebuggerQuit, bdb.BdbQuit)):
            return False
        if type(error) is CollectiveError:  # a group that was broken before
            return False
        error = error.__cause__
    return True


def _first_line(error: BaseException) -> str:
    return shorten(format_error(error).partition("\n")[0], 200)
