"""What waits to be sent: bounded, and what has no room is counted, never waited for."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

from distdbg.export.tracing.settings import Batching

Item = TypeVar("Item")

#: The words of `distdbg_agent_spans_total`.
SENT: Final = "sent"
UNSAMPLED: Final = "unsampled"
DROPPED: Final = "dropped"
MISSED: Final = "missed"
FAILED: Final = "failed"


class Queue(Generic[Item]):
    """One signal's. Whoever puts never waits."""

    def __init__(self, batching: Batching, news: threading.Condition) -> None:
        self.batching = batching
        self.counts: Counter[str] = Counter()
        self._items: deque[Item] = deque()
        self._news = news
        self._since_ns = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, items: Iterable[Item], now_ns: int) -> None:
        """As many as there is room for; the newest are dropped, for what they belong to is on its way."""
        with self._news:
            before = len(self._items)
            for item in items:
                if len(self._items) >= self.batching.most_queued:
                    self.counts[DROPPED] += 1
                    continue
                if not self._items:
                    self._since_ns = now_ns
                self._items.append(item)
            # Else it knows already when to come: to be woken costs more than to encode a span.
            if not before or len(self._items) >= self.batching.most_batch > before:
                self._news.notify()

    def due_ns(self) -> int | None:
        """When the next batch is to be sent; None: nothing waits. 0: it is full."""
        if not self._items:
            return None
        if len(self._items) >= self.batching.most_batch:
            return 0
        return self._since_ns + self.batching.delay_ns

    def take(self, now_ns: int) -> list[Item]:
        with self._news:
            count = min(len(self._items), self.batching.most_batch)
            batch = [self._items.popleft() for _ in range(count)]
            self._since_ns = now_ns
            return batch

    def drop_all(self) -> None:
        """It is over: what is left has nowhere to go."""
        with self._news:
            self.counts[DROPPED] += len(self._items)
            self._items.clear()


class Latest(Generic[Item]):
    """A place for one: what comes later replaces what nobody has taken."""

    def __init__(self, news: threading.Condition) -> None:
        self.counts: Counter[str] = Counter()
        self._item: Item | None = None
        self._news = news

    def __len__(self) -> int:
        return int(self._item is not None)

    def put(self, item: Item) -> None:
        with self._news:
            self.counts[DROPPED] += self._item is not None
            self._item = item
            self._news.notify()

    def due_ns(self) -> int | None:
        return None if self._item is None else 0

    def take(self, now_ns: int) -> list[Item]:
        del now_ns
        with self._news:
            item, self._item = self._item, None
            return [] if item is None else [item]

    def drop_all(self) -> None:
        with self._news:
            self.counts[DROPPED] += self._item is not None
            self._item = None


AnyQueue = Queue[Any] | Latest[Any]
