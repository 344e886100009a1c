"""Signals that end the launcher, or are for its ranks, as a file descriptor that its loop can wait for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Final, Self

#: What schedulers and people send as a notice (a time limit comes, write a checkpoint) to whom they know: the
#: launcher. They are for the ranks, unless --signals-to-handle names them.
NOTICES: Final = (signal.SIGUSR1, signal.SIGUSR2)


class Signals:
    """Catches signals while it is open; a context manager, for the main thread."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.received: list[int] = []
        self._noticed: list[int] = []
        #: When the last one came, monotonic.
        self.last_ns = 0
        #: Called in the handler, for whoever waits elsewhere.
        self.on_signal: Callable[[], None] | None = None
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._former = {
            number: signal.signal(number, self._catch)
            for number in numbers
            if not _is_of_nohup(number)
        }
        for number in NOTICES:
            if number not in self._former and signal.getsignal(number) is not signal.SIG_IGN:
                self._former[number] = signal.signal(number, self._notice)
        # Blocked ones are inherited like ignored ones, but nobody wants that of a launcher.
        self._former_mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, self._former)
        self._former_fd = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        self.last_ns = time.monotonic_ns()
        if self.on_signal is not None:
            self.on_signal()

    def _notice(self, number: int, frame: FrameType | None) -> None:
        self._noticed.append(number)

    def take_notices(self) -> list[int]:
        """Those of NOTICES that have come since the last call: they are for the ranks."""
        taken, self._noticed = self._noticed, []
        return taken

    def fileno(self) -> int:
        """Readable when a signal has come since `drain`."""
        return self._reading

    def drain(self) -> None:
        """Make `fileno` wait for the next signal."""
        with suppress(BlockingIOError):
            os.read(self._reading, 4096)

    def close(self) -> None:
        signal.set_wakeup_fd(self._former_fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._former_mask)
        for number, former in self._former.items():
            signal.signal(number, signal.SIG_DFL if former is None else former)
        os.close(self._reading)
        os.close(self._writing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_of_nohup(number: int) -> bool:
    """Whether whoever started this process wants it to outlive its terminal."""
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
