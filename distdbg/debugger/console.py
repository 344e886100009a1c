"""Console: where a debugger's prompt is: at a client of the desk, or at the terminal of this process."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from distdbg import config
from distdbg.debugger.desk import PromptExpired, PromptInput
from distdbg.debugger.given_input import InputSource, given, is_by_our_launcher, turn
from distdbg.debugger.keyboard import Complete, editing

#: Threads of one process take turns at its terminal.
_TURN: Final = threading.RLock()
#: How often is looked for news while nobody types.
_LOOK_S: Final = 0.25


class DebugConsole(Protocol):
    def ask(
        self, prompt: str, deadline: float, complete: Complete, greet: Callable[[], None]
    ) -> str | None:
        """The next line; None: go on. KeyboardInterrupt from Ctrl-C, Expired after the deadline."""
        ...

    def write(self, text: str) -> None: ...

    def notify(self, text: str) -> None:
        """Show what has happened meanwhile, also while a line is awaited."""
        ...


class DeskConsole:
    """At a client, whoever it is."""

    def __init__(self, desk: PromptInput, check: Callable[[], bool]) -> None:
        self._desk = desk
        self._check = check

    def ask(
        self, prompt: str, deadline: float, complete: Complete, greet: Callable[[], None]
    ) -> str | None:
        return self._desk.ask(prompt, deadline, complete=complete, greet=greet, check=self._check)

    def write(self, text: str) -> None:
        self._desk.write(text)

    def notify(self, text: str) -> None:
        self._desk.notify(text)


class OwnTerminal:
    """At the terminal of this process, with readline, whatever stdin and stdout are."""

    def __init__(self, fd: int, look: Callable[[], None] = lambda: None) -> None:
        """`look`: called while nothing is typed; may notify."""
        self.fd = fd
        self._look = look
        self._prompt = ""

    def ask(
        self, prompt: str, deadline: float, complete: Complete, greet: Callable[[], None]
    ) -> str | None:
        while not select.select([self.fd], [], [], 0)[0]:
            self.write(prompt)
            self._await_key(prompt, deadline)
            self.write("\r")
            break
        with _over_terminal(self.fd), editing(complete):
            try:
                return input(prompt)
            except EOFError:
                self.write("\n")
                return "EOF"

    def _await_key(self, prompt: str, deadline: float) -> None:
        """Until something is typed. Expired."""
        self._prompt = prompt
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                self._look()
                if select.select([self.fd], [], [], min(left_s, _LOOK_S))[0]:
                    return
        finally:
            self._prompt = ""
        raise PromptExpired

    def notify(self, text: str) -> None:
        self.write(f"\r\x1b[K{text}{self._prompt}")

    def write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        with suppress(OSError):
            while data:
                data = data[os.write(self.fd, data) :]


@contextmanager
def at_own_terminal(look: Callable[[], None] = lambda: None) -> Iterator[OwnTerminal | None]:
    """The terminal of this process while its threads' turn is this one's; None: it has none."""
    fd = _open_terminal()
    if fd is None:
        yield None
        return
    try:
        with _TURN, turn(fd, look):
            yield OwnTerminal(fd, look)
    finally:
        os.close(fd)


def _open_terminal() -> int | None:
    """The terminal that this process is in the foreground of, or was given by a launcher.

    torchrun starts its ranks in sessions of their own: they have its terminal as stdin alone.
    """
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        if is_by_our_launcher() or given() is not InputSource.TERMINAL:
            return None
        with suppress(OSError):
            return os.open(os.ttyname(0), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        return None
    with suppress(OSError):
        if os.tcgetpgrp(fd) == os.getpgrp():
            return fd
    os.close(fd)
    return None


def nobody_types() -> bool:
    """Whether there is no way to type at a prompt of this process, but for who knows that he can attach."""
    if config.read_setting("DISTDBG_DEBUGGABLE") or is_by_our_launcher():
        return False
    fd = _open_terminal()
    if fd is not None:
        os.close(fd)
    return fd is None and given() is InputSource.NOTHING


@contextmanager
def _over_terminal(fd: int) -> Iterator[None]:
    """input() edits lines only where stdin and stdout are the process's own and a terminal."""
    if sys.stdin is sys.__stdin__ and sys.stdout is sys.__stdout__ and _are_terminals():
        yield
        return
    saved = [os.dup(0), os.dup(1)]
    streams = sys.stdin, sys.stdout
    try:
        for stream in streams:
            with suppress(Exception):
                stream.flush()
        os.dup2(fd, 0)
        os.dup2(fd, 1)
        sys.stdin = os.fdopen(0, encoding="utf-8", errors="replace", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
        yield
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        sys.stdin, sys.stdout = streams
        for number, copy in enumerate(saved):
            os.dup2(copy, number)
            os.close(copy)


def _are_terminals() -> bool:
    try:
        return os.isatty(0) and os.isatty(1)
    except OSError:
        return False
