"""A terminal for debuggers that need one: a pty over the process's own streams, shown to the attached client.

    client  <--bytes-->  desk  <-->  a thread here  <-->  pty  <-->  fds 0, 1, 2 and sys.stdin/out/err

For the time of a prompt the streams of the whole process are that terminal, so there is one such prompt at
a time. What was shown last is kept for a client that comes later.
"""

from __future__ import annotations

import bdb
import fcntl
import os
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from distdbg.debugger import protocol
from distdbg.debugger.desk import PromptExpired, PromptInput
from distdbg.errors import DistError

#: How much of what was shown a client sees that comes later.
_KEPT_NBYTES: Final = 1 << 16
_INTERRUPT: Final = b"\x03"
_DEFAULT_SIZE: Final = (24, 80)
_STREAMS: Final = ("stdin", "stdout", "stderr")

#: The streams are the process's.
ONE_AT_A_TIME: Final = threading.RLock()


class ClientTerminal:
    """A pty whose other side is the client of a desk."""

    def __init__(self, desk: PromptInput, deadline: float, is_staying: Callable[[], bool]) -> None:
        """It hangs up after `deadline`, or when the rank need not stay: then its input ends."""
        self._desk = desk
        self._deadline = deadline
        self._is_staying = is_staying
        self.is_hung_up = False
        self._master, self.fd = os.openpty()
        os.set_blocking(self._master, False)
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lock = threading.Lock()
        """Protects the three below."""
        self._typed = bytearray()
        self._shown = bytearray()
        self._is_closing = False
        self._resize(*(desk.size or _DEFAULT_SIZE))
        desk.take_bytes, desk.take_size = self._take, self._resize_again
        desk.on_attached = self._show_again
        self._thread = threading.Thread(target=self._run, name="distdbg terminal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Show what is left and take it down."""
        self._desk.take_bytes = self._desk.take_size = None
        self._desk.on_attached = lambda: None
        self._is_closing = True
        self._wake_up()
        self._thread.join(2.0)
        if self._thread.is_alive():
            return  # it is in a client that does not read; better three descriptors than another's
        for fd in (self.fd, self._woken, self._wake, *(() if self.is_hung_up else (self._master,))):
            os.close(fd)

    @property
    def takes_interrupts(self) -> bool:
        """Whether Ctrl-C is an interrupt now, and no key of whoever has the terminal."""
        try:
            return bool(termios.tcgetattr(self.fd)[3] & termios.ISIG)
        except termios.error:
            return False

    def _take(self, data: bytes) -> None:
        if _INTERRUPT in data and self.takes_interrupts:
            data = data.replace(_INTERRUPT, b"")
            self._desk.interrupt()
        with self._lock:
            self._typed += data
        self._wake_up()

    def _resize(self, rows: int, columns: int) -> None:
        with suppress(OSError):
            fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def _resize_again(self, rows: int, columns: int) -> None:
        self._resize(rows, columns)
        # It is no controlling terminal, so the kernel tells nobody.
        ident = threading.main_thread().ident
        if ident is not None and callable(signal.getsignal(signal.SIGWINCH)):
            signal.pthread_kill(ident, signal.SIGWINCH)

    def _show_again(self) -> None:
        with self._lock:
            shown = bytes(self._shown)
        self._desk.say_stopped()
        if shown:
            self._desk.send({"bytes": protocol.to_base64(shown)})
        self._resize_again(*(self._desk.size or _DEFAULT_SIZE))

    def _wake_up(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    def _run(self) -> None:
        while True:
            writable = [self._master] if self._typed else []
            timeout_s = 0.0 if self._is_closing else 0.5
            if not self._is_closing and self._is_time():
                self.is_hung_up = True
                os.close(self._master)
                return
            ready, ready_to_write, _ = select.select(
                [self._master, self._woken], writable, [], timeout_s
            )
            if self._woken in ready:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
            if self._master in ready:
                data = self._read()
                with self._lock:
                    self._shown += data
                    del self._shown[:-_KEPT_NBYTES]
                if data:
                    self._desk.send({"bytes": protocol.to_base64(data)})
            elif self._is_closing:
                return
            if ready_to_write:
                with self._lock, suppress(BlockingIOError):
                    del self._typed[: os.write(self._master, self._typed[:1024])]

    def _is_time(self) -> bool:
        if time.monotonic() > self._deadline:
            return True
        try:
            return not self._is_staying()
        except DistError:  # the job is over, which the rank's own thread raises
            return True

    def _read(self) -> bytes:
        try:
            return os.read(self._master, 1 << 15)
        except OSError:
            return b""


@contextmanager
def client_terminal(
    desk: PromptInput, deadline: float, is_staying: Callable[[], bool]
) -> Iterator[ClientTerminal | None]:
    """In this block the process's streams are seen by the client of the desk, who is waited for.

    None: it is time to go on. Expired when nobody came, or it took too long.
    """
    terminal = ClientTerminal(desk, deadline, is_staying)
    try:
        if not desk.await_client(deadline, is_staying):
            yield None
            return
        try:
            with over_streams(terminal.fd):
                yield terminal
        except bdb.BdbQuit:  # also what the end of its input is to many a debugger
            if not terminal.is_hung_up:
                raise
        if terminal.is_hung_up and is_staying():
            raise PromptExpired
    finally:
        terminal.close()


@contextmanager
def over_streams(fd: int) -> Iterator[None]:
    """In this block the process's streams are the terminal `fd`."""
    streams = [getattr(sys, name) for name in _STREAMS]
    _flush(streams)
    saved = [_copy(number) for number in range(3)]
    for number in range(3):
        os.dup2(fd, number)
    own = [
        os.fdopen(number, mode, 1, encoding="utf-8", errors="backslashreplace", closefd=False)
        for number, mode in enumerate(("r", "w", "w"))
    ]
    for name, stream in zip(_STREAMS, own, strict=True):
        setattr(sys, name, stream)
    try:
        yield
    finally:
        _flush(own[1:])
        for name, stream, mine in zip(_STREAMS, streams, own, strict=True):
            if getattr(sys, name) is mine:
                setattr(sys, name, stream)
        for number, copy in enumerate(saved):
            if copy is None:
                os.close(number)
            else:
                os.dup2(copy, number)
                os.close(copy)


def _copy(number: int) -> int | None:
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 10)
    except OSError:
        return None  # it is closed


def _flush(streams: Sequence[object]) -> None:
    for stream in streams:
        # Also when the rank was interrupted in the middle of a print.
        with suppress(Exception):
            stream.flush()  # type: ignore[attr-defined]  # a stream, or nothing that matters
