"""Which span of the program's own each thread of a rank was in, and from which number on."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from distdbg.export.otel.facts import Context
from distdbg.record import entries

_MOST_THREADS: Final = 256
#: Changes that are remembered of a thread: an op is asked about when it has ended.
_MOST_CHANGES: Final = 16


class Contexts:
    """Those of one record, told in order."""

    def __init__(self) -> None:
        self._threads: OrderedDict[int, list[tuple[int, Context | None]]] = OrderedDict()

    def take(self, event: entries.Event) -> None:
        """Take in an event, if it is one of these."""
        if not isinstance(event, entries.Context):
            return
        context = None
        if event.trace_id:
            context = Context(int(event.trace_id, 16), int(event.span_id, 16), event.is_sampled)
        changes = self._threads.setdefault(event.thread, [])
        changes.append((event.number, context))
        del changes[:-_MOST_CHANGES]
        self._threads.move_to_end(event.thread)
        if len(self._threads) > _MOST_THREADS:
            self._threads.popitem(last=False)

    @property
    def is_used(self) -> bool:
        """Whether the program has had spans of its own so far."""
        return bool(self._threads)

    def has_any(self, thread: int) -> bool:
        """Whether a thread is in one, or was a moment ago."""
        return bool(self._threads) and any(
            context is not None for _, context in self._threads.get(thread, ())
        )

    def at(self, thread: int, number: int) -> Context | None:
        """The one in which a thread was at the event of this number; None: in none."""
        for begun, context in reversed(self._threads.get(thread, ())):
            if begun < number:
                return context
        return None
