"""Bytes of one rank's stderr to what may go to a console that others use too: whole lines and whole
tracebacks. Pure: the clock is given.

A traceback that Python itself prints, a warning, and faulthandler's block of a crash come in pieces. Each
is kept until it is over, and each of its lines gets the rank in front. Everything else goes out line by line
as it was written. Nothing is kept for long: a block that does not go on for BLOCK_S, or a prompt without an
end for LINE_S, goes out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

from distdbg.launch.outputs.lines import LineCutter
from distdbg.record.traceback_text import PACKAGE

BLOCK_S: Final = 0.25
LINE_S: Final = 1.0
_MAX_BLOCK_NBYTES: Final = 1 << 18
_BEGIN: Final = b"Traceback (most recent call last):"
#: Between exceptions that come from each other.
_LINKS: Final = (
    b"During handling of the above exception",
    b"The above exception was the direct cause",
    _BEGIN,
)
#: 'a.py:4: RuntimeWarning: divide by zero', with a line of source below it.
WARNING: Final = re.compile(rb"[^\s:][^:\n]*:\d+: \w*Warning: ")
#: A warning of ours, with lines of its own above the source: 'rank 0 started it at ...', 'hint: ...'.
_DETAILED: Final = b": LatentWarning: "
_HINT: Final = b"  hint: "
#: What faulthandler prints of a crash in native code.
_CRASH: Final = b"Fatal Python error: "
_OF_CRASH: Final = (
    b"Current thread", b"Thread 0x", b"Extension modules: ", b"<", b"Python runtime state: ",
)  # fmt: skip
_CTRL_C: Final = b"KeyboardInterrupt"
_FRAME: Final = re.compile(rb'  File "([^"]+)", line (\d+)')
#: Without all of them nothing begins that is kept.
_WORDS: Final = (_BEGIN, _CRASH, b"Warning: ")
#: Frames below which nobody looks for their own line.
_NOT_THEIRS: Final = (b"<", os.fsencode(PACKAGE), os.fsencode(os.path.dirname(os.__file__)))


def is_of_warning(block: list[bytes], line: bytes) -> bool:
    """Whether a line belongs to the warning that `block` begins with."""
    if line[:2] != b"  ":
        return False
    if _DETAILED in block[0]:
        return not any(each.startswith(_HINT) for each in block[:-1])
    return len(block) == 1


class StreamBlocks:
    def __init__(
        self,
        prefix: bytes,
        *,
        is_full: bool = False,
        on_crash: Callable[[bytes], object] = lambda text: None,
    ) -> None:
        """`is_full`: a traceback of Ctrl-C is shown as well, and not its line alone.

        `on_crash` is called with faulthandler's block of a crash.
        """
        self._is_full = is_full
        self._on_crash = on_crash
        self._prefix = prefix
        self._lines = LineCutter(b"")
        self._block: list[bytes] = []
        self._has_last_line = False
        """Whether the line that names the exception is in the block."""
        self._fed_s = 0.0

    def feed(self, data: bytes, now_s: float) -> bytes:
        """What can go out now."""
        self._fed_s = now_s
        whole = self._lines.feed(data)
        if not self._block and not any(word in whole for word in _WORDS):
            return whole
        return b"".join(self._pass(line) for line in whole.splitlines(keepends=True))

    def idle(self, now_s: float) -> bytes:
        """What has waited for long enough, when nothing has come."""
        out = b""
        if self._block and now_s - self._fed_s >= BLOCK_S:
            out = self._end_block()
        if now_s - self._fed_s >= LINE_S:
            out += self._lines.let_go()
        return out

    @property
    def is_empty(self) -> bool:
        return not self._block and self._lines.is_empty

    def finish(self) -> bytes:
        rest = self._lines.finish()
        out = b"".join(self._pass(line) for line in rest.splitlines(keepends=True))
        return out + self._end_block()

    def _pass(self, line: bytes) -> bytes:
        if not self._block:
            if line.startswith((_BEGIN, _CRASH)) or WARNING.match(line):
                self._block.append(line)
                return b""
            return line
        if self._goes_on(line):
            self._block.append(line)
            if sum(map(len, self._block)) > _MAX_BLOCK_NBYTES:
                return self._end_block()
            return b""
        return self._end_block() + self._pass(line)

    def _goes_on(self, line: bytes) -> bool:
        if self._block[0].startswith(_CRASH):
            return line[:2] == b"  " or not line.strip() or line.startswith(_OF_CRASH)
        if not self._block[0].startswith(_BEGIN):
            return is_of_warning(self._block, line)
        is_inside = line[:1] in (b" ", b"\t", b"|", b"+") or not line.strip()
        if is_inside or line.startswith(_LINKS):
            self._has_last_line = self._has_last_line and is_inside
            return True
        if self._has_last_line:
            return False
        self._has_last_line = True
        return True

    def _end_block(self) -> bytes:
        block, self._block, self._has_last_line = self._block, [], False
        if block and block[-1].strip() == _CTRL_C and not self._is_full:
            block = [_CTRL_C + _place_of(block) + b"\n"]
        if block and block[0].startswith(_CRASH):
            self._on_crash(b"".join(block))
        bare = self._prefix.rstrip()
        return b"".join((self._prefix if line.strip() else bare) + line for line in block)


def _place_of(block: list[bytes]) -> bytes:
    """' at train.py:80', the last line of the user's own; b'' where there is none."""
    for line in reversed(block):
        found = _FRAME.match(line)
        if found is not None and not found[1].startswith(_NOT_THEIRS):
            return b" at " + os.path.basename(found[1]) + b":" + found[2]
    return b""
