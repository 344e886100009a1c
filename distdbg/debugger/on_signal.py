"""Stops a rank at SIGUSR1, while a rule asks for it and the program has no handler of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from distdbg.log.logs import get_logger

_log = get_logger("debugger")
_SIGNAL = signal.SIGUSR1


class SignalStop:
    """The handler of one rank; Python runs handlers in the main thread, so that has to be the rank."""

    def __init__(self, stop: Callable[[], None], rank: int) -> None:
        self._stop = stop
        self._rank = rank
        self._is_listening = False
        self._has_said = False

    def listen(self, wanted: bool) -> None:
        """Listen, or listen no longer. Called again at each look at the rules."""
        if wanted == self._is_listening:
            return
        if threading.current_thread() is not threading.main_thread():
            # The next op of the main thread tries again; a rank that is a thread never can.
            if wanted:
                self._say("signals arrive in the main thread, which has called no op yet")
            return
        if not wanted:
            if signal.getsignal(_SIGNAL) == self._handle:
                signal.signal(_SIGNAL, signal.SIG_DFL)
            self._is_listening = False
            return
        if is_caught(_SIGNAL):
            self._say("the program handles or ignores it")
            return
        signal.signal(_SIGNAL, self._handle)
        self._is_listening = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._stop()

    def _say(self, why: str) -> None:
        if not self._has_said:
            self._has_said = True
            _log.warning("SIGUSR1 does not stop this rank: %s", why, rank=self._rank)


def is_caught(signum: int) -> bool:
    """Whether anybody in this process, Python or not, has a handler for a signal, or ignores it."""
    if signal.getsignal(signum) != signal.SIG_DFL:
        return True
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            masks = [line.split()[1] for line in file if line.startswith(("SigCgt:", "SigIgn:"))]
    except OSError:
        return False
    return any(int(mask, 16) >> (signum - 1) & 1 for mask in masks)
