"""Publishes why a rank leaves, before it does: to the ranks that still wait for it and to its record.

A process that ends by itself publishes "returned" or what it raised; one that is killed, or calls
os._exit, publishes nothing. So the others can tell a program that stops early from a death.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from distdbg.errors import DistError
from distdbg.ops.sites import skipped_folders
from distdbg.record.error_file import (
    because_of,
    error_file_path,
    read_error_file,
    waits_for,
    write_error_file,
)
from distdbg.record.format import Exit
from distdbg.record.handled_error import say_raised
from distdbg.record.known_marks import SYS_EXIT
from distdbg.record.libraries import is_library
from distdbg.record.printable import shorten, shorten_middle
from distdbg.record.raised_error import say_error
from distdbg.record.writing import write_exit_call
from distdbg.runtime.groups.leaving import MAX_WHY, say_why
from distdbg.runtime.latent_errors.search import end_latent
from distdbg.runtime.process.child_error import note_error_of_child
from distdbg.runtime.process.uncaught import print_in_blocks
from distdbg.runtime.process.world import observed
from distdbg.runtime.recorder.recording import end_recording

if TYPE_CHECKING:
    from distdbg.runtime.process.world import World

_own_exit = os._exit
_own_sys_exit = sys.exit
#: The process whose calls are noted; 0: none yet.
_noted_pid = 0

RETURNED = "returned"
#: How long the rank that serves the store stays for others that have not left their groups yet.
LINGER_S: Final = 5.0
#: Letters of a message that sys.exit prints.
_MAX_STATUS: Final = 120


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
        # A rank that failed ends at once: its launcher is to know.
        if error is None and world.owns_store and world.membership is not None:
            world.membership.end(LINGER_S)


def tell_launcher_of_errors() -> None:
    """From here on the launcher learns what ends this rank, be it in the making of its first group.

    Never forgotten: many a program destroys its groups on the way out of an exception.
    """
    print_in_blocks()
    _note_exit_calls()
    atexit.unregister(_write_error_file)
    atexit.register(_write_error_file, os.getpid())
    note_error_of_child(partial(_leave_child, time.time_ns()))


def _leave_child(since_ns: int, error: BaseException) -> None:
    """Say what the function of this child process raised, as for an uncaught exception.

    `since_ns`: when it began to join its first group. What another child raised before was handled, as the
    program went on; an error of a child beside this one may be the cause of this one's, and stays.
    """
    with suppress(OSError, DistError):
        path = error_file_path()
        # The launcher's rank is a parent of this process: the ranks that an error here names are not its own.
        if path is not None and not (because_of(error) or waits_for(error)):
            former = read_error_file(path)
            if former is None or (former.is_of_child and former.wall_ns < since_ns):
                write_error_file(error, path, is_of_child=True)  # before others notice
    leave(observed(), error)


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
    return f"raised {say_error(error).splitlines()[0].removesuffix(': ')}"


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
    why = RETURNED if error is None else shorten(raised(error), MAX_WHY)
    for group in list(world.groups.values()):
        say_why(group.engine, why, at_once)


def _note_exit_calls() -> None:
    """From here on os._exit and sys.exit say in the record where they were called. Idempotent.

        thread 'beat' called os._exit(75) at beat.py:33 (run); the main thread was at job.py:16 (evaluate)

    It is a finding in the record, written before the process ends. A child that was forked ends as ever.
    """
    global _noted_pid
    _noted_pid = os.getpid()
    if os._exit is not _exit:
        os._exit = _exit
    if sys.exit is not _sys_exit:
        sys.exit = _sys_exit


def _sys_exit(status: Any = None, /) -> NoReturn:
    """Raise SystemExit, as sys.exit does; in another thread that ends the thread alone."""
    with suppress(Exception):
        if threading.current_thread() is threading.main_thread():
            _note_own(status)
    _own_sys_exit(status)


def _note_own(status: Any) -> None:
    site = _site(sys._getframe(2))
    recorder = observed().recorder if os.getpid() == _noted_pid else None
    if recorder is not None and site:
        is_plain = status is None or type(status) in (bool, int, str)
        shown = shorten_middle(repr(status), _MAX_STATUS) if is_plain else "..."
        handled = say_raised(sys.exc_info()[1])
        how = f"while it handled {handled}" if handled else ""
        write_exit_call(recorder, f"{SYS_EXIT}{shown})", [site], how)


def _exit(status: int) -> NoReturn:
    """End the process at once, as os._exit does."""
    try:
        _note(status)
    finally:  # whatever goes wrong with the note
        _own_exit(status)


def _note(status: Any) -> None:
    if type(status) is not int:
        return  # it may raise instead
    caller = sys._getframe(2)
    if caller.f_globals.get("__name__", "").startswith("multiprocessing."):
        return  # so a child that was forked ends, whatever its function does
    recorder = observed().recorder if os.getpid() == _noted_pid else None
    site = _site(caller)
    if recorder is None or not site:
        return
    thread, main = threading.current_thread(), threading.main_thread()
    if thread is main:
        write_exit_call(recorder, f"called os._exit({status!r})", [site])
        return
    frames = sys._current_frames()
    there = _site(frames.get(main.ident or 0))
    write_exit_call(recorder, f"thread {thread.name!r} called os._exit({status!r})", [site, there])


def _site(frame: FrameType | None) -> str:
    """'/home/me/heartbeat.py:33 (run)': the innermost line of the program; '' without one."""
    folders = skipped_folders()
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((*folders, "<")) and not is_library(code.co_filename):
            return f"{code.co_filename}:{frame.f_lineno} ({code.co_qualname})"
        frame = frame.f_back
    return ""
