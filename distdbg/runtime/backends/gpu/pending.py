"""GpuPending: an op on GPU arrays that a thread of the group carries out."""

from __future__ import annotations

import threading
from collections.abc import Callable

from distdbg.control.clock import JobClock
from distdbg.errors import DistError, OpTimeout
from distdbg.ops.call import Call
from distdbg.record.durations import duration_text
from distdbg.runtime.handles.work import NO_DEADLINE

#: A wait looks at the clock of the job so often; its end wakes it at once.
_SLICE_S = 0.05


class GpuPending:
    """Implements Pending; see distdbg/ops/engine.py."""

    __slots__ = ("_call", "_clock", "_ended", "_error", "_group", "_lock", "_on_end")

    def __init__(self, call: Call, group: str, clock: JobClock) -> None:
        self._call = call
        self._group = group
        self._clock = clock
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._lock = threading.Lock()  # protects _on_end, which is called once
        self._on_end: Callable[[BaseException | None], object] | None = None

    def end(self, error: BaseException | None) -> None:
        """It is over, well or with this error."""
        with self._lock:
            self._error = error
            self._ended.set()
            tell, self._on_end = self._on_end, None
        if tell is not None:
            tell(error)

    def when_ended(self, tell: Callable[[BaseException | None], object]) -> None:
        """Call it at the end, or now if that was."""
        with self._lock:
            if not self._ended.is_set():
                self._on_end = tell
                return
        tell(self._error)

    def done(self) -> bool:
        """Whether the op has ended, well or badly; never blocks."""
        return self._ended.is_set()

    def wait(self, deadline_ns: int) -> None:
        """Block until the op has ended and raise its error; at the deadline, OpTimeout."""
        started_ns = self._clock.now_ns()
        while not self._ended.wait(None if deadline_ns == NO_DEADLINE else _SLICE_S):
            now_ns = self._clock.now_ns()
            if now_ns >= deadline_ns and not self._ended.is_set():
                waited_s = (now_ns - started_ns) / 1e9
                name = self._call.name or self._call.kind.label
                raise OpTimeout(
                    f"{name} on group '{self._group}' did not end within {duration_text(waited_s)}; it "
                    "continues",
                    kind=self._call.kind.label,
                    group=self._group,
                    waited_s=waited_s,
                )
        if self._error is not None:
            raise self._error

    def has_failed(self) -> bool:
        """Whether the op is known to have ended with an error."""
        return self._ended.is_set() and isinstance(self._error, DistError)

    def source_rank(self) -> int:
        """It is no message."""
        return -1
