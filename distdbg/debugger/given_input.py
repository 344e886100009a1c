"""What a rank was given as stdin: a terminal, lines, or nothing. Other launchers than ours pass on their own.

    torchrun train.py                  on a terminal: the prompt is there, as Python's own would be
    echo "p x" | torchrun train.py     each prompt takes the next line, and all is shown on stdout
    torchrun train.py < /dev/null      nothing will ever be typed there

Ranks share what is theirs by inheritance: one at a time has it (`turn`), until it goes on.
"""

from __future__ import annotations

import fcntl
import os
import queue
import select
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import Final

from distdbg.debugger.desk import PromptInput, TypedLine
from distdbg.debugger.protocol import Words

#: The client's name.
FROM_STDIN: Final = "stdin"
_STDIN: Final = 0
_STDOUT: Final = 1
#: How often is looked whether another rank has left what both share.
_LOOK_S: Final = 0.05


class InputSource(Enum):
    """What stdin is."""

    TERMINAL = auto()
    LINES = auto()
    NOTHING = auto()


def given(fd: int = _STDIN) -> InputSource:
    """What stdin is now: lines that have all been read are nothing."""
    if fd == _STDIN and sys.__stdin__ is None:
        return (
            InputSource.NOTHING
        )  # it was closed at the start: what has the number now is something else
    try:
        facts = os.fstat(fd)
        if os.isatty(fd):
            return InputSource.TERMINAL
        if stat.S_ISREG(facts.st_mode):
            is_left = os.lseek(fd, 0, os.SEEK_CUR) < facts.st_size
            return InputSource.LINES if is_left else InputSource.NOTHING
    except OSError:  # closed
        return InputSource.NOTHING
    if not stat.S_ISFIFO(facts.st_mode) and not stat.S_ISSOCK(facts.st_mode):
        return InputSource.NOTHING  # /dev/null
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    events = dict(poll.poll(0)).get(fd, 0)
    is_ended = events & (select.POLLHUP | select.POLLERR) and not events & select.POLLIN
    return InputSource.NOTHING if is_ended else InputSource.LINES


def is_by_our_launcher() -> bool:
    """Whether `distdbg run` has started this rank: it shows prompts by itself, and has the terminal."""
    return "DISTDBG_HOST" in os.environ and "DISTDBG_RUN" in os.environ


@contextmanager
def turn(fd: int, look: Callable[[], None]) -> Iterator[None]:
    """Have what `fd` was opened on alone. `look` is called while another process has it; it may raise."""
    while not _lock(fd):
        look()
        time.sleep(_LOOK_S)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # it has no locks
        return True
    return True


@contextmanager
def _opened_anew(fd: int) -> Iterator[int]:
    """Open a file anew, for a lock of its own: those who inherit a descriptor share its locks."""
    try:
        fd = os.open(
            f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:  # a socket; it is inherited by nobody else
        yield fd
        return
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def typing_lines(desk: PromptInput, is_wanted: bool) -> Iterator[None]:
    """In this block the lines that the rank was given are typed at its prompt, until a client attaches."""
    reader = (
        LineReader(desk) if is_wanted and not desk.client and given() is InputSource.LINES else None
    )
    try:
        yield
    finally:
        if reader is not None:
            reader.close()


class _Closed(Exception):
    """The rank goes on before it was this one's turn."""


class LineReader:
    """A client of a desk that types what comes on stdin, and shows what the rank says on stdout.

    When the lines end, the rank goes on.
    """

    def __init__(self, desk: PromptInput) -> None:
        """Attach, before the rank is at its prompt."""
        self._desk = desk
        self._said: queue.SimpleQueue[Words | None] = queue.SimpleQueue()
        self._post = self._said.put
        self._closed, self._close = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="distdbg stdin", daemon=True)
        desk.attach(FROM_STDIN, self._post)
        self._thread.start()

    def close(self) -> None:
        """Show what is left and leave; the rank is still stopped."""
        self._is_closing = True
        self._said.put(None)
        os.write(self._close, b"\0")
        self._thread.join()
        os.close(self._close)
        os.close(self._closed)
        if self._is_attached:
            self._desk.leave()

    @property
    def _is_attached(self) -> bool:
        return self._desk.post is self._post

    def _run(self) -> None:
        with suppress(_Closed), _opened_anew(_STDIN) as fd, turn(fd, self._look):
            _show(f"distdbg: the lines of stdin are typed at rank {self._desk.rank}\n")
            while (words := self._said.get()) is not None:
                if "write" in words:
                    _show(str(words["write"]))
                elif "prompt" in words and self._is_attached:
                    _show(str(words["prompt"]))
                    line = self._read()
                    if line is not None:
                        _show(f"{line}\n")
                        self._desk.put(TypedLine(line))

    def _look(self) -> None:
        if self._is_closing:
            raise _Closed

    def _read(self) -> str | None:
        """The next line, by single bytes: what is beyond it is another's; None: it is not wanted."""
        line = bytearray()
        poll = select.poll()
        for fd in (_STDIN, self._closed):
            poll.register(fd, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._closed in ready or not self._is_attached:
                return None
            try:
                byte = os.read(_STDIN, 1)
            except BlockingIOError:  # another process has taken it
                continue
            except OSError:
                return "EOF"
            if byte == b"\n" or (not byte and line):
                return line.decode(errors="replace")
            if not byte:
                return "EOF"
            line += byte


def _show(text: str) -> None:
    data = text.encode(errors="backslashreplace")
    with suppress(OSError):
        while data:
            data = data[os.write(_STDOUT, data) :]
