"""Stopper: stops one running rank when a client asks for it. The ways are in interrupt.py."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from distdbg.debugger.desk import PromptInput
from distdbg.debugger.interrupt import MainThreadSignal, RankInterrupter, at_next_op, is_at_console


class Stopper:
    """Stops one rank; `is_wanted` until the rank has stopped or nobody wants it to."""

    def __init__(
        self,
        desk: PromptInput,
        *,
        groups: Callable[[], list[Any]],
        on_signal: Callable[[FrameType | None], None],
        stop: Callable[[FrameType], None],
        stop_soon: Callable[[FrameType], None],
    ) -> None:
        """`stop` is called in the rank's thread, `stop_soon` in another while the rank is traced."""
        self._desk = desk
        self._groups = groups
        self._on_signal = on_signal
        self._stop = stop
        self._stop_soon = stop_soon
        #: The rank's.
        self.thread = threading.get_ident()
        self._signal: MainThreadSignal | None = None
        self._no_signal = ""
        self._chase: RankInterrupter | None = None
        self._last_chase: RankInterrupter | None = None
        #: Interrupts what was typed, until the handler has run.
        self._break: RankInterrupter | None = None
        self._forget_next_op: Callable[[], None] = lambda: None

    @property
    def is_wanted(self) -> bool:
        return self._chase is not None

    @property
    def is_main_thread(self) -> bool:
        """Whether the rank runs in it."""
        return self.thread == threading.main_thread().ident

    def listen(self) -> None:
        """Install the handler of the signal, where that can be; in the rank's thread."""
        if self._signal is None:
            try:
                self._signal = MainThreadSignal(self._on_signal)
            except RuntimeError as why:
                self._no_signal = str(why)

    def close(self) -> None:
        """Take the handler away; in the rank's thread."""
        self.give_up()
        self._end_break()
        if self._signal is not None:
            self._signal.remove()
            self._signal = None

    def break_off(self) -> None:
        """Interrupt what was typed, in the main thread; from any other.

        The signal is sent until the handler has run: one that comes just before a `time.sleep` begins does
        not end it.
        """
        if self._signal is None or not self._signal.is_there:
            self._desk.write(f"*** it cannot be interrupted: {self._why_no_signal}\n")
        elif self._break is None:
            self._break = chase = RankInterrupter(
                rank=self._desk.rank, thread=self.thread, write=self._desk.write
            )
            chase.begin(self._signal.send, by_signal=True)

    def takes_break(self, frame: FrameType | None, is_executing: bool, *, is_foreign: bool) -> bool:
        """In the handler: whether what was typed is to be interrupted now.

        Not in the midst of the prompt's own work, for a lock may be held there; the signal comes again.
        `is_foreign`: it was typed at a debugger of another's.
        """
        if is_executing and not is_foreign and is_at_console(frame):
            return False
        return self._end_break() and is_executing

    def _end_break(self) -> bool:
        chase, self._break = self._break, None
        if chase is not None:
            chase.end()
        return chase is not None

    @property
    def _why_no_signal(self) -> str:
        return self._no_signal or "the program replaced our signal handler by its own"

    def want(self) -> None:
        """Stop the rank, however long it takes; from any thread."""
        if self._chase is not None:
            return
        chase = RankInterrupter(rank=self._desk.rank, thread=self.thread, write=self._desk.write)
        self._chase = self._last_chase = chase
        if self._signal is not None and self._signal.is_there:
            chase.begin(self._signal.send, by_signal=True)
            return
        if self.is_main_thread:
            self._desk.write(
                f"rank {self._desk.rank} is not stopped at once: {self._why_no_signal}; "
                "it stops at its next op\n"
            )
        self._forget_next_op = at_next_op(self._groups(), self._at_op)
        chase.begin(self._at_line, by_signal=False)

    def give_up(self) -> None:
        """The rank has stopped, or nobody wants it to any more; from any thread."""
        chase, self._chase = self._chase, None
        if chase is not None:
            chase.end()
        self._forget_next_op()

    def join(self, limit_s: float) -> None:
        """Wait for the end of what has been given up."""
        if self._last_chase is not None:
            self._last_chase.join(limit_s)

    def _at_op(self) -> None:
        if self.is_wanted:
            self._stop(sys._getframe(1))

    def _at_line(self) -> None:
        frame = sys._current_frames().get(self.thread)
        if frame is not None and self.is_wanted:
            self._stop_soon(frame)
