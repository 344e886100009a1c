"""The end of a traceback, without the frames of distdbg: what the user's program did last. Pure."""

from __future__ import annotations

import os
import re
from pathlib import Path

from distdbg.record.printable import shorten

_MOST_FRAMES = 3
_MOST_SOURCE = 100
_FRAME = re.compile(r'File "(.+)", line (\d+)(?:, in (.+))?')
_LIBRARY = re.compile(r'File "[^"]*/lib/python3[^/"]*/|File "<|\.p(?:yx|xd|xi)", line')
_OURS = f'File "{Path(__file__).parents[1]}/'


def last_frames(traceback: str, ours: str = _OURS, most: int = _MOST_FRAMES) -> list[str]:
    """The lines of the last frames of the last exception, indented as Python does below its first.

    Frames of distdbg itself are left out, unless there are no others.
    """
    blocks: list[list[str]] = []
    before: list[list[str]] = []
    is_inside = False
    for line in traceback.splitlines():
        if line.startswith("  + Exception Group Traceback "):
            return _frames_of_group(traceback, ours, most)
        if line.startswith("Traceback "):
            before, blocks, is_inside = blocks or before, [], True  # raised before, and handled
        elif is_inside and line.startswith("  File "):
            blocks.append([line[2:]])
        elif is_inside and line.startswith("    "):
            if blocks and set(line.strip()) - set("^~"):  # no markers
                blocks[-1].append(line[2:])
        elif not line.startswith("  ["):  # '[Previous line repeated 990 more times]'
            is_inside = False  # the text of the exception
    blocks = blocks or before  # a text of the exception may look like the head of a traceback
    theirs = [block for block in blocks if ours not in block[0]] or blocks
    return [line for block in theirs[-most:] for line in block]


def _frames_of_group(traceback: str, ours: str, most: int) -> list[str]:
    """Of an exception group: where it was raised; its lines have a rail in front."""
    lines = ["Traceback (most recent call last):"]
    for line in traceback.partition("+ Exception Group Traceback ")[2].splitlines()[1:]:
        if not line.startswith("  |   "):
            break
        lines.append(line[4:])
    return last_frames("\n".join(lines), ours, most)


def last_line(frames: list[str]) -> list[str]:
    """Of such lines one: 'at train.py:80 (step): y = x / 0'; all of them where the last frame is none."""
    places = [i for i, line in enumerate(frames) if _FRAME.match(line)]
    # The program's own line, not that of a library below it.
    own = [i for i in places if not _LIBRARY.search(frames[i])]
    at = (own or places or [-1])[-1]
    found = _FRAME.match(frames[at]) if at >= 0 else None
    if found is None:
        return frames
    function = f" ({found[3]})" if found[3] else ""
    end = next((i for i in places if i > at), len(frames))
    source = " ".join(line.strip() for line in frames[at + 1 : end])
    text = f": {shorten(source, _MOST_SOURCE)}" if source else ""
    return [f"at {os.path.basename(found[1])}:{found[2]}{function}{text}"]
