"""The end of a traceback, without the frames of distdbg: what the user's program did last. Pure."""

from __future__ import annotations

from pathlib import Path

_MOST_FRAMES = 3
_OURS = f'File "{Path(__file__).parents[1]}/'


def last_frames(traceback: str, ours: str = _OURS) -> list[str]:
    """The lines of the last frames of the last exception, indented as Python does below its first.

    Frames of distdbg itself are left out, unless there are no others.
    """
    blocks: list[list[str]] = []
    is_inside = False
    for line in traceback.splitlines():
        if line.startswith("Traceback "):
            blocks, is_inside = [], True  # forget what was raised before, and handled
        elif is_inside and line.startswith("  File "):
            blocks.append([line[2:]])
        elif is_inside and line.startswith("    "):
            if blocks and set(line.strip()) - set("^~"):  # no markers
                blocks[-1].append(line[2:])
        elif not line.startswith("  ["):  # '[Previous line repeated 990 more times]'
            is_inside = False  # the text of the exception
    theirs = [block for block in blocks if ours not in block[0]] or blocks
    return [line for block in theirs[-_MOST_FRAMES:] for line in block]
