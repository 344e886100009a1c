"""The terminal of this process as an input: line editing, raw keys, signals, window size."""

from __future__ import annotations

import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

Complete = Callable[[str, str, int, int], list[str]]
#: What parts words for completion, as pdb has it.
_DELIMITERS: Final = " \t\n`@#$%^&*()=+[{]}\\|;:'\",<>?"


@contextmanager
def editing(complete: Complete) -> Iterator[None]:
    """In this block input() completes so. What readline knew before comes back."""
    try:
        import readline
    except ImportError:
        yield
        return
    found: list[str] = []

    def completer(text: str, state: int) -> str | None:
        nonlocal found
        if state == 0:
            buffer = readline.get_line_buffer()
            found = complete(text, buffer, readline.get_begidx(), readline.get_endidx())
        return found[state] if state < len(found) else None

    before: Any = readline.get_completer()
    delimiters = readline.get_completer_delims()
    readline.set_completer(completer)
    readline.set_completer_delims(_DELIMITERS)
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(before)
        readline.set_completer_delims(delimiters)


def typed() -> str:
    """What stands in the line that input() is reading, from any thread."""
    readline = sys.modules.get("readline")
    return "" if readline is None else str(readline.get_line_buffer())


@contextmanager
def raw_keys(is_terminal: bool) -> Iterator[None]:
    """In this block stdin gives each key as it is; nothing happens where it is no terminal."""
    if not is_terminal:
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setraw(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextmanager
def handling(signum: int, handler: Callable[[], None]) -> Iterator[None]:
    """In this block the signal is handled so; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signum, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signum, before)


def window_size() -> list[int] | None:
    """Rows and columns of the terminal that stdout is; None: it is none."""
    with suppress(OSError, ValueError):
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        if rows and columns:
            return [rows, columns]
    return None
