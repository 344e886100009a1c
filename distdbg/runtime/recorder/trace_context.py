"""The span of the user's own traces that a thread is in, for its record: the parent of its ops.

    with tracer.start_as_current_span("step"):     the program's, with OpenTelemetry
        dist.all_reduce(x)                         recorded: CONTEXT, all_reduce
        dist.barrier()                             recorded: barrier
    dist.barrier()                                 recorded: CONTEXT of none, barrier

Native code asks before each op, mark and span, where DISTDBG_OTLP names traces and from when the program has
loaded OpenTelemetry's API; nothing of it is loaded here. As long as a thread stays in one context, asking
costs one call of that API. What it raises is logged once, and it is asked no more.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from distdbg.log.logs import get_logger

_log = get_logger("record")

#: Until this is loaded there is nobody to ask.
API: Final = "opentelemetry.trace"

#: The halves of a trace's id, a span's id, whether the trace is kept: as native code takes it.
Words = tuple[int, int, int, bool]

_NONE: Final[Words] = (0, 0, 0, False)
_LIMIT: Final = 2**64 - 1
#: A context that stays is written again after this part of the ring, so that of a record that is read when
#: all is over, most ops have theirs.
_REPEATS: Final = 8


def names_traces(otlp: object) -> bool:
    """Whether the value of DISTDBG_OTLP asks for traces."""
    return not {"traces", "all"}.isdisjoint(str(otlp or "").replace(" ", "").split(","))


class _Seen(threading.local):
    """What a thread was in when it was last asked about."""

    def __init__(self) -> None:
        #: A context, which never changes, and the number of the event from which on it is written again.
        self.seen: tuple[object, float] = (None, 0)
        self.words: Words | None = None


class TraceContext:
    """Asked by the recorder of one rank, in the thread in which an op is issued."""

    def __init__(self, ring_count: int, rank: int) -> None:
        self._rank = rank
        self._repeat_after = max(1, ring_count // _REPEATS)
        self._local = _Seen()
        self._get_current: Callable[[], object] | None = None
        self._get_span: Callable[[Any], Any] = lambda context: None
        self._is_dropped = False
        #: Whether any thread was ever in one: before that, none needs to be told from it.
        self._is_used = False

    def __call__(self, last: int) -> Words | None:
        """What is to be written as the event after number `last`; None: nothing."""
        try:
            get_current = self._get_current or self._find()
            if get_current is None:
                return None
            context, until = self._local.seen
            current = get_current()
            return None if current is context and last < until else self._look(current, last)
        except Exception as error:  # noqa: BLE001 - an observer that fails must not break an op
            self._drop(error)
            return None

    def _look(self, context: object, last: int) -> Words | None:
        local = self._local
        before, until = local.words, local.seen[1]
        words = local.words = self._words(context)
        if words == _NONE:
            local.seen = (context, math.inf)
            return words if self._is_used and before != _NONE else None
        self._is_used = True
        if words == before and last < until:
            local.seen = (context, until)
            return None
        local.seen = (context, last + self._repeat_after)
        return words

    def _words(self, context: object) -> Words:
        found = self._get_span(context).get_span_context()
        trace, span = int(found.trace_id), int(found.span_id)
        if not (0 < trace < 2**128 and 0 < span <= _LIMIT):
            return _NONE
        return trace >> 64, trace & _LIMIT, span, bool(int(found.trace_flags) & 1)

    def _find(self) -> Callable[[], object] | None:
        """The API, if the program has loaded all of it."""
        if self._is_dropped:
            return None
        get_current = getattr(sys.modules.get("opentelemetry.context"), "get_current", None)
        get_span = getattr(sys.modules.get(API), "get_current_span", None)
        if get_current is None or get_span is None:
            return None
        self._get_span = get_span
        self._get_current = get_current
        return self._get_current

    def _drop(self, error: Exception) -> None:
        if not self._is_dropped:
            what = f"{type(error).__name__}: {error}"
            _log.warning("the spans of this program are not recorded: %s", what, rank=self._rank)
        self._is_dropped = True
        self._get_current = None
