"""Makes text from programs safe to print: without control characters. And what is short of it."""

from __future__ import annotations

import re
from typing import Final

#: What ends a folder: not the escape of a byte in a name that is no text where the rank runs ('\\udcd1').
_FOLDER: Final = re.compile(r"/|\\(?!ud[89a-f][0-9a-f]{2})")


def printable(line: str) -> str:
    """Escape what a terminal might obey."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def file_name(path: str) -> str:
    """The name of a file without its folders, also those of Windows."""
    return _FOLDER.split(path)[-1]


def shorten(text: str, most: int) -> str:
    """Cut a text to at most `most` letters, between two words, and end it with ' ...'."""
    if len(text) <= most:
        return text
    room = most - 4
    if room < 1:
        return text[: max(most, 0)]
    kept = text[:room]
    if text[room] != " ":
        # One word that takes most of the room is cut within: nothing would be left of it.
        before = kept.rfind(" ")
        kept = kept[:before] if before > room // 2 else kept
    return f"{kept.rstrip()} ..."


def shorten_middle(text: str, most: int) -> str:
    """Cut a text to at most `most` letters; the last third stays, where libraries say what is wrong."""
    if len(text) <= most:
        return text
    tail = text[len(text) - most // 3 :]
    # Begins with a word, unless that is most of it.
    _, found, words = tail.partition(" ")
    tail = words if found and len(words) > len(tail) // 2 else tail
    return f"{shorten(text, most - len(tail) - 1)} {tail}"
