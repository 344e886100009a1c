"""A frame of a stack in one line."""

from __future__ import annotations


def frame_text(function: str, file: str, line: int | None) -> str:
    """'step (train.py:88)', without the folders; a native frame may have no file."""
    place = file.replace("\\", "/").rpartition("/")[2]
    if not place:
        return function
    return f"{function} ({place}:{line})" if line else f"{function} ({place})"
