"""Finds the frames of the user's program, and names them."""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from traceback import walk_tb
from types import CodeType, FrameType, TracebackType

from distdbg.ops.sites import skipped_folders

_LIBRARIES = (
    "<frozen ",
    *(sysconfig.get_path(key) + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")),
)


def is_ours(frame: FrameType) -> bool:
    """Whether it is code of this package."""
    return frame.f_code.co_filename.startswith(skipped_folders())


def user_frame(frame: FrameType | None = None) -> FrameType:
    """The innermost frame outside this package, from `frame` or the caller on; else the outermost."""
    at: FrameType = sys._getframe(1) if frame is None else frame
    while is_ours(at) and at.f_back is not None:
        at = at.f_back
    return at


def program_frame(frame: FrameType) -> FrameType:
    """The innermost frame of the program; of a library, Python's own included, if there is none."""
    innermost = user_frame(frame)
    at: FrameType | None = innermost
    while at is not None and (is_ours(at) or at.f_code.co_filename.startswith(_LIBRARIES)):
        at = at.f_back
    return at or innermost


def keep_locals(frame: FrameType) -> None:
    """Make what was assigned in f_locals the function's own, as it is by itself after a trace function.

    It works once after each look at f_locals.
    """
    if sys.version_info < (3, 13):  # where f_locals is a copy
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(1))


def site_of(frame: FrameType) -> str:
    """'train.py:88 (step)'."""
    return site_at(frame.f_code, frame.f_lineno)


def site_at(code: CodeType, line: int) -> str:
    """'train.py:88 (step)'."""
    return f"{os.path.basename(code.co_filename)}:{line} ({code.co_qualname})"


def stop_place(frame: FrameType, trace: TracebackType | None) -> tuple[CodeType, int]:
    """The code and the line of the frame, or of the user's innermost where an exception came by."""
    place = None if trace is not None else (frame, frame.f_lineno)
    for at, line in walk_tb(trace):
        if place is None or not is_ours(at):
            place = at, line
    at, line = place or (frame, frame.f_lineno)
    return at.f_code, line
