"""Stops a running rank: by a signal in the main thread, in other threads at the next line or op.

The signal's handler opens the prompt in the interrupted frame; that works in Python, in time.sleep and in
our own waits, which handle signals. It does not work while the process is in code of C that does not, so
the signal is sent again until the rank has stopped, and the waiting client sees where it is.

A handler may run between any two bytecodes. So it lets the rank continue for now where it is in this
package's debugger or in the control page: both hold locks that a prompt needs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from distdbg.debugger.frames import site_of, user_frame
from distdbg.record.durations import duration_text

#: Next to the one for stacks; programs that have a handler of their own for it keep it.
INTERRUPT_SIGNAL: Final = signal.SIGRTMIN + 8

_ROOT: Final = Path(__file__).resolve().parent.parent
_DEBUGGER: Final = str(_ROOT / "debugger") + os.sep
_LIBRARY: Final = os.path.dirname(os.__file__) + os.sep
_CRITICAL: Final = tuple(str(_ROOT / room) + os.sep for room in ("debugger", "control"))
#: But a rank only waits there, for others that are at their prompts.
_WAITS: Final = str(_ROOT / "debugger" / "breakpoint.py")
#: How long until the first word about a rank that does not stop, and how often after it.
_PATIENCE_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5


class MainThreadSignal:
    """The handler of this process; there while a rank in the main thread may be interrupted."""

    def __init__(self, on_signal: Callable[[FrameType | None], None]) -> None:
        """RuntimeError when it is not the main thread, or the program has a handler."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("the rank is not the main thread of its process")
        if signal.getsignal(INTERRUPT_SIGNAL) is not signal.SIG_DFL:
            raise RuntimeError(
                f"the program has a handler of its own for signal {int(INTERRUPT_SIGNAL)}"
            )
        self._own = lambda _number, frame: on_signal(frame)
        #: Nothing is sent after the handler is gone: by default the signal ends the process.
        self._lock = threading.Lock()
        self._is_there = True
        signal.signal(INTERRUPT_SIGNAL, self._own)

    def send(self) -> None:
        """Send the signal to the main thread, from any."""
        ident = threading.main_thread().ident
        with self._lock:
            if ident is not None and self.is_there:
                signal.pthread_kill(ident, INTERRUPT_SIGNAL)

    @property
    def is_there(self) -> bool:
        """Whether nobody has put another handler in its place since."""
        return self._is_there and signal.getsignal(INTERRUPT_SIGNAL) is self._own

    def remove(self) -> None:
        """Take it away; in the main thread only, elsewhere nothing happens."""
        if not self.is_there or threading.current_thread() is not threading.main_thread():
            return
        with self._lock:
            self._is_there = False
        # What was sent before is dropped by this, and ends nobody.
        signal.signal(INTERRUPT_SIGNAL, signal.SIG_IGN)
        signal.signal(INTERRUPT_SIGNAL, signal.SIG_DFL)


def is_critical(frame: FrameType | None) -> bool:
    """Whether a prompt cannot be opened there."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_CRITICAL) and file != _WAITS:
            return True
        frame = frame.f_back
    return False


def is_at_console(frame: FrameType | None) -> bool:
    """Whether it is the prompt's own work: what was typed shows something, is over, or has not begun."""
    while frame is not None and frame.f_code.co_filename.startswith((_DEBUGGER, _LIBRARY)):
        if frame.f_code.co_filename.startswith(_DEBUGGER):
            return True
        frame = frame.f_back
    return False


def raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise in another thread at its next bytecode. It cannot be taken back: a traced 3.11 would hang."""
    raised = ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


class RankInterrupter:
    """Tries to stop a rank until it has stopped or nobody wants it any more; a thread for that time."""

    def __init__(
        self,
        *,
        rank: int,
        thread: int,
        write: Callable[[str], None],
    ) -> None:
        self._rank = rank
        self._thread = thread
        self._write = write
        self._is_over = threading.Event()
        self._again: Callable[[], None] = lambda: None
        self._by_signal = False
        self._runner = threading.Thread(target=self._run, name="distdbg interrupt", daemon=True)

    def begin(self, again: Callable[[], None], *, by_signal: bool) -> None:
        """Call `again` now and then more and more rarely."""
        self._again, self._by_signal = again, by_signal
        self._runner.start()

    def end(self) -> None:
        """The rank has stopped, or nobody wants it to any more."""
        self._is_over.set()

    def join(self, limit_s: float) -> None:
        """Wait until the thread is gone, at most so long."""
        self._runner.join(limit_s)

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        began = time.monotonic()
        reported = 0
        while not self._is_over.is_set():
            self._again()
            self._is_over.wait(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            waited_s = time.monotonic() - began
            if waited_s >= _PATIENCE_S * (2**reported) and not self._is_over.is_set():
                reported += 1
                self._write(
                    f"rank {self._rank} has not stopped for {duration_text(waited_s)}: {self._where()}; "
                    "still trying\n"
                )

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread)
        if frame is None:
            return "its thread is gone"
        site = site_of(user_frame(frame))
        if self._by_signal:
            return f"it is in code that handles no signals, called at {site}"
        return f"it stops at its next op, and is at {site}"


def at_next_op(groups: list[Any], stop: Callable[[], None]) -> Callable[[], None]:
    """Call `stop` before the next op on any of these groups, once, in the thread that calls the op.

    Returns what takes it back.
    """

    def undo() -> None:
        for group in groups:
            group.__dict__.pop("run", None)

    def wrap(group: Any) -> None:
        def run(*args: Any, **kwargs: Any) -> Any:
            undo()
            stop()
            return group.run(*args, **kwargs)

        group.run = run

    for group in groups:
        wrap(group)
    return undo
