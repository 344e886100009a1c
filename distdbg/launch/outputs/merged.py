"""Lines of many ranks to one sequence: by time, equal ones folded. Pure.

    merger = Merger(4, window_ns=10**9)
    merger.put(0, Line(time_ns, rank, stream, "epoch 1 loss 0.5"))
    merger.take()          Folded: ranks 0-3 wrote it

The lines of one source stay in their order, whatever is folded. A line is folded with equal ones that
other ranks have further behind, if that is within the window: what stands before those goes first. Where
two ranks wrote the same lines in different orders, one of the lines is shown more than once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from distdbg.launch.output_streams import StdStreams


class OutputLine(NamedTuple):
    """One line of one rank. Its time grows within its source."""

    time_ns: int
    rank: int
    stream: StdStreams
    text: str


class Folded(NamedTuple):
    time_ns: int
    ranks: tuple[int, ...]
    stream: StdStreams
    text: str


_Key = tuple[StdStreams, str]

#: How far apart equal lines of several ranks may be.
WINDOW_NS: Final = 1_000_000_000
#: How many lines of one rank are looked at ahead, within the window.
_MAX_AHEAD: Final = 1000


class LineSource(Protocol):
    """Lines of one rank, some at a time (`timed.TimedFile`)."""

    def follow(self) -> None: ...

    def read(self, *, is_over: bool) -> Sequence[OutputLine] | None: ...


class Merger:
    """Takes lines by source, gives them in order."""

    def __init__(self, source_count: int, *, window_ns: int) -> None:
        """`window_ns` 0: nothing is folded."""
        self._window_ns = window_ns
        self._queues: list[deque[OutputLine]] = [deque() for _ in range(source_count)]
        #: The times of each text in a queue.
        self._ahead: list[dict[_Key, deque[int]]] = [{} for _ in range(source_count)]

    def add_source(self) -> None:
        self._queues.append(deque())
        self._ahead.append({})

    def put(self, source: int, line: OutputLine) -> None:
        self._queues[source].append(line)
        if self._window_ns:
            self._ahead[source].setdefault((line.stream, line.text), deque()).append(line.time_ns)

    def needs(self, source: int, first_ns: int | None) -> bool:
        """Whether a further line of a source may matter for what comes next; `first_ns` as it was."""
        queue = self._queues[source]
        if first_ns is None or not queue:
            return not queue
        return queue[-1].time_ns < first_ns + WINDOW_NS and len(queue) < _MAX_AHEAD

    def first_ns(self) -> int | None:
        """The time of the earliest line; None: there is none."""
        return min((queue[0].time_ns for queue in self._queues if queue), default=None)

    def take(self) -> Folded | None:
        """The next line of all that are there; None: there is none."""
        filled = [source for source, queue in enumerate(self._queues) if queue]
        if not filled:
            return None
        source = min(filled, key=lambda source: self._queues[source][0].time_ns)
        if not self._window_ns:
            line = self._pop(source)
            return Folded(line.time_ns, (line.rank,), line.stream, line.text)
        source = self._choose(source, filled)
        first = self._queues[source][0]
        key = (first.stream, first.text)
        lines = [self._pop(other) for other in filled if self._has_at_head(other, key, first)]
        ranks = tuple(sorted({line.rank for line in lines}))
        return Folded(min(line.time_ns for line in lines), ranks, *key)

    def _choose(self, source: int, filled: list[int]) -> int:
        """A source whose first line nobody has further behind; or any, where there is none such."""
        seen = {source}
        while True:
            line = self._queues[source][0]
            key = (line.stream, line.text)
            until_ns = line.time_ns + self._window_ns
            for other in filled:
                times = self._ahead[other].get(key)
                if other not in seen and times and times[0] <= until_ns:
                    head = self._queues[other][0]
                    if (head.stream, head.text) != key:
                        break
            else:
                return source
            source = other
            seen.add(source)

    def _has_at_head(self, source: int, key: _Key, first: OutputLine) -> bool:
        head = self._queues[source][0]
        is_near = abs(head.time_ns - first.time_ns) <= self._window_ns
        return is_near and (head.stream, head.text) == key

    def _pop(self, source: int) -> OutputLine:
        line = self._queues[source].popleft()
        if self._window_ns:
            key = (line.stream, line.text)
            times = self._ahead[source][key]
            times.popleft()
            if not times:
                del self._ahead[source][key]
        return line


def read_ahead(
    merger: Merger, sources: Sequence[LineSource], is_at_end: list[bool], *, is_over: bool = True
) -> bool:
    """Read where more is needed to tell what comes next; whether anything was read."""
    has_read, first_ns = False, merger.first_ns()
    for index, source in enumerate(sources):
        while not is_at_end[index] and merger.needs(index, first_ns):
            if not is_over:
                source.follow()
            lines = source.read(is_over=is_over)
            is_at_end[index] = not lines
            for line in lines or ():
                has_read = True
                merger.put(index, line)
    return has_read
