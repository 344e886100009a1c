"""Publishes why a rank leaves, before it does: to the ranks that still wait for it and to its record.

A process that ends by itself publishes "returned" or what it raised; one that is killed, or calls
os._exit, publishes nothing. So the others can tell a program that stops early from a death.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from distdbg.errors import DistError, error_text
from distdbg.native import NativeError
from distdbg.record.error_file import write_error_file
from distdbg.record.format import Exit
from distdbg.record.printable import shorten
from distdbg.runtime.latent_errors.search import end_latent
from distdbg.runtime.process.uncaught import print_in_blocks
from distdbg.runtime.recorder.recording import end_recording

if TYPE_CHECKING:
    from distdbg.runtime.process.world import World

RETURNED = "returned"
#: How long the rank that serves the store stays for others that have not left their groups yet.
LINGER_S: Final = 5.0
#: Of `RankState::why` in native/core/segment.hpp: one byte ends it.
_MOST_WHY: Final = 63


class ExitNote:
    """Says at the end of the process why the ranks of a World leave; forgotten with `cancel`."""

    def __init__(self, world: World) -> None:
        self._world = weakref.ref(world)
        atexit.register(self.write)

    def cancel(self) -> None:
        """There are no groups any more."""
        atexit.unregister(self.write)

    def write(self) -> None:
        """What atexit calls: after the traceback of an uncaught exception was printed."""
        world = self._world()
        if world is None:
            return
        error = _uncaught()
        leave(world, error)
        # Who failed ends at once: its launcher is to know.
        if error is None and world.owns_store and world.membership is not None:
            world.membership.end(LINGER_S)


def tell_launcher_of_errors() -> None:
    """From here on the launcher learns what ends this rank, be it in the making of its first group.

    Never forgotten: many a program destroys its groups on the way out of an exception.
    """
    print_in_blocks()
    atexit.unregister(_write_error_file)
    atexit.register(_write_error_file, os.getpid())


def _uncaught() -> BaseException | None:
    # At a prompt it may be an old one.
    return None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)


def _write_error_file(pid: int) -> None:
    """Tell the launcher what ended this rank; a child that it forked speaks for itself only."""
    error = _uncaught()
    if error is not None and os.getpid() == pid:
        write_error_file(error)


def raised(error: BaseException) -> str:
    """'raised ValueError: no data'."""
    first_line = error_text(error).partition("\n")[0]
    name = type(error).__name__
    return f"raised {name}: {first_line}" if first_line else f"raised {name}"


def leave(world: World, error: BaseException | None = None, at_once: bool = False) -> None:
    """Say on all groups, and in the record, that this rank returned, or what it raised.

    `at_once`: it leaves the groups now, so ops in flight on other ranks end.
    """
    try:
        end_latent(world, "left", error=error)
    finally:  # a warning may be an error, where the program wants it so
        _leave(world, error, at_once)


def _leave(world: World, error: BaseException | None, at_once: bool) -> None:
    end_recording(world, Exit.RETURNED if error is None else Exit.RAISED, error)
    why = RETURNED if error is None else shorten(raised(error), _MOST_WHY)
    for group in list(world.groups.values()):
        engine: object = group.engine
        while engine is not None:  # there may be others around the one that can tell
            tell = getattr(engine, "leave_because", None)
            if tell is not None:
                with suppress(DistError, NativeError):  # closed already, or inherited by a fork
                    tell(why, at_once)
                break
            engine = getattr(engine, "inner", None)
