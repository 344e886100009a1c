"""Notes where the program ends its own process: os._exit and sys.exit leave no traceback.

    thread 'beat' called os._exit(75) at beat.py:33 (Beat.run); the main thread was at job.py:16 (evaluate)

    called sys.exit(0) at parts.py:17 (done)

It goes into the record as a finding, before the process ends. A child that was forked ends as ever.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from distdbg.ops.sites import skipped_folders
from distdbg.record.libraries import is_library
from distdbg.record.writing import write_exit_call
from distdbg.runtime.process.world import observed

_own_exit = os._exit
_own_sys_exit = sys.exit
#: The process whose calls are noted; 0: none yet.
_noted_pid = 0


def note_exit_calls() -> None:
    """From here on os._exit and sys.exit say in the record where they were called. Idempotent."""
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
        shown = repr(status) if status is None or type(status) in (bool, int) else "..."
        write_exit_call(recorder, f"called sys.exit({shown})", [site])


def _exit(status: int) -> NoReturn:
    """End the process at once, as os._exit does."""
    try:
        _note(status)
    finally:  # whatever goes wrong with the note
        _own_exit(status)


def _note(status: Any) -> None:
    if type(status) is not int:
        return  # it may raise instead
    recorder = observed().recorder if os.getpid() == _noted_pid else None
    site = _site(sys._getframe(2))
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
