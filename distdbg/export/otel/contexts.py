"""In which span of the program's own each thread of a rank is."""

from __future__ import annotations

from typing import Final

from distdbg.export.otel.recorded_ops import Context
from distdbg.record import entries

_MAX_THREADS: Final = 256


class SpanContexts:
    """Those of one record, told in order."""

    def __init__(self) -> None:
        self._threads: dict[int, Context] = {}

    def take(self, event: entries.Event) -> None:
        """Take in an event, if it is one of these."""
        if not isinstance(event, entries.ContextEntry):
            return
        self._threads.pop(event.thread, None)
        if not event.trace_id:
            return
        if len(self._threads) >= _MAX_THREADS:
            del self._threads[next(iter(self._threads))]
        self._threads[event.thread] = Context(
            int(event.trace_id, 16), int(event.span_id, 16), event.is_sampled
        )

    def forget(self) -> None:
        """Events were missed: nobody knows where the threads are until they say it again."""
        self._threads.clear()

    @property
    def are_any(self) -> bool:
        return bool(self._threads)

    def of(self, thread: int) -> Context | None:
        """That of a thread; None: it is in none."""
        return self._threads.get(thread)
