"""Bytes of one stream to whole lines that begin with its prefix. Pure; any bytes.

A line ends with \\n, or with \\r, as a progress bar writes it. Nothing but prefixes is added, except
a \\n behind a last line that has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: A longer line goes out in pieces, between which lines of others may come.
MAX_LINE_NBYTES = 1 << 20

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)")
#: A \r at the very end may be the first half of \r\n.
_LAST_END = re.compile(rb"\r(?!\n)(?=[\s\S])")


class LineCutter:
    """Cuts one stream; `needles`: only lines that contain one of them come out."""

    def __init__(self, prefix: bytes, needles: Sequence[bytes] = ()) -> None:
        self._prefix = prefix
        self._needles = tuple(needles)
        self._rest = b""
        #: Whether a line that is too long to wait for its end goes out; None: at the beginning of one.
        self._fate: bool | None = None

    def feed(self, data: bytes) -> bytes:
        """The lines that are complete now, each behind its prefix."""
        data = self._rest + data
        end = _end_of_lines(data)
        whole, self._rest = data[:end], data[end:]
        lines = self._dress(whole) if whole else b""
        if len(self._rest) > MAX_LINE_NBYTES:
            lines += self._dress_line(self._rest)
            if self._fate is None:
                self._fate = self._is_wanted(self._rest)
            self._rest = b""
        return lines

    @property
    def is_empty(self) -> bool:
        """Whether no line waits for its end."""
        return not self._rest

    def let_go(self) -> bytes:
        """A line without an end goes out as far as it has come; the rest of it follows."""
        rest, self._rest = self._rest, b""
        if not rest:
            return b""
        lines = self._dress_line(rest)
        if self._fate is None:
            self._fate = self._is_wanted(rest)
        return lines

    def finish(self) -> bytes:
        """What is left: a last line without an end."""
        rest, self._rest = self._rest, b""
        if rest:
            return self._dress(rest if rest.endswith((b"\r", b"\n")) else rest + b"\n")
        was_out, self._fate = self._fate, None
        return b"\n" if was_out else b""

    def _dress(self, whole: bytes) -> bytes:
        if not self._needles and b"\r" not in whole:
            first = b"" if self._fate else self._prefix
            self._fate = None
            return first + whole[:-1].replace(b"\n", b"\n" + self._prefix) + b"\n"
        dressed = []
        for line in _LINE.findall(whole):
            dressed.append(self._dress_line(line))
            self._fate = None
        return b"".join(dressed)

    def _dress_line(self, line: bytes) -> bytes:
        if self._fate is None:
            return self._prefix + line if self._is_wanted(line) else b""
        return line if self._fate else b""

    def _is_wanted(self, line: bytes) -> bool:
        return not self._needles or any(needle in line for needle in self._needles)


def _end_of_lines(data: bytes) -> int:
    """Behind the last line that has its end."""
    end = data.rfind(b"\n") + 1
    if data.find(b"\r", end) >= 0:
        for found in _LAST_END.finditer(data, end):
            end = found.end()
    return end
