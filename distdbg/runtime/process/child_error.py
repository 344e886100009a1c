"""Says what the function of a child process raised, where only an exit code would be left of it.

multiprocessing catches it, torch.multiprocessing.spawn does before and calls sys.exit(1). In neither case
does Python's hook for uncaught exceptions run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

from distdbg.ops.sites import skipped_folders
from distdbg.record.libraries import is_library

#: Before what a program has registered: the record is to have the error before its groups go.
_PRIORITY: Final = 1 << 20
#: The process that notes its error; 0: none yet.
_noted_pid = 0


def note_error_of_child(note: Callable[[BaseException], None]) -> None:
    """Call `note` with what the function of this process raised, at its end. Idempotent.

    Does nothing in a process that multiprocessing did not start.
    """
    global _noted_pid
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _noted_pid == os.getpid():
        return
    from multiprocessing.util import Finalize

    _noted_pid = os.getpid()
    Finalize(None, _note, args=(os.getpid(), note), exitpriority=_PRIORITY)


def _note(pid: int, note: Callable[[BaseException], None]) -> None:
    """What multiprocessing calls when the function is over, while what it raised is still on its way."""
    if os.getpid() != pid:
        return
    error = sys.exc_info()[1]
    # Forked in an `except` block, a process is still in that of its parent.
    if error is None or not _is_of_child(error):
        return
    raised = _reason_of_exit(error) if isinstance(error, SystemExit) else error
    if raised is not None:
        note(raised)


def _is_of_child(error: BaseException) -> bool:
    from multiprocessing.process import BaseProcess

    frames = _frames(error)
    return bool(frames) and frames[0].f_code is BaseProcess._bootstrap.__code__  # type: ignore[attr-defined]


def _reason_of_exit(error: SystemExit) -> BaseException | None:
    """The error for which a library ended the process; None where the program did so itself."""
    frames, reason = _frames(error), error.__context__
    if not error.code or not isinstance(reason, Exception) or any(map(_is_of_program, frames)):
        return None
    caught = _frames(reason)[:1]
    return reason if caught and caught[0] in frames else None


def _frames(error: BaseException) -> list[FrameType]:
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    return found


def _is_of_program(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return not path.startswith((*skipped_folders(), "<")) and not is_library(path)
