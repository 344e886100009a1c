"""The stack in a traceback, or in what faulthandler prints of a crash. Pure.

Traceback (most recent call last):              Fatal Python error: Segmentation fault
  File "/job/train.py", line 80, in step        Current thread 0x00007f... (most recent call first):
    y = x / 0                                     File "/job/train.py", line 7 in backward
ZeroDivisionError: division by zero
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.traceback_text import PACKAGE

_FRAME: Final = re.compile(r'\s*File "([^"\n]{1,4096})", line (\d{1,9}),? in (.{1,200})')
_LIBRARY: Final = re.compile(r"/lib/python3[^/]*/|^<")
_CURRENT: Final = "Current thread "
_LAST: Final = "Traceback (most recent call last):"
_MAX_FRAMES: Final = 64


def read_stack(text: str) -> tuple[RecordedFrame, ...]:
    """The innermost frame first, without those of this package; () where there is none.

    Of several exceptions the last one, which the program did not catch; of threads the one that crashed.
    """
    lines = text.splitlines()
    crash = next((at for at, line in enumerate(lines) if line.startswith(_CURRENT)), None)
    if crash is not None:
        return _theirs(_run(lines[crash + 1 :]))
    heads = [at for at, line in enumerate(lines) if line.rstrip() == _LAST]
    frames = _run(lines[heads[-1] + 1 :]) if heads else []
    return _theirs(frames[::-1])


def own_frame(stack: Sequence[RecordedFrame]) -> RecordedFrame | None:
    """The innermost frame of the program itself; of a library if there is no other; None: no frame."""
    own = (frame for frame in stack if not _LIBRARY.search(frame.file))
    return next(own, stack[0] if stack else None)


def _run(lines: list[str]) -> list[RecordedFrame]:
    """The frames up to the first line that belongs to none."""
    frames: list[RecordedFrame] = []
    for line in lines:
        found = _FRAME.fullmatch(line)
        if found is not None:
            frames.append(RecordedFrame(found[1], int(found[2]), found[3]))
        elif not line.startswith("  "):  # neither the text of a line nor its markers
            break
    return frames


def _theirs(frames: list[RecordedFrame]) -> tuple[RecordedFrame, ...]:
    own = [frame for frame in frames if not frame.file.startswith((PACKAGE, "<frozen "))]
    return tuple(own[:_MAX_FRAMES])
