"""Ops of which all hosts keep the spans, on their way through the tree: slow or failed on one. Pure.

A node tells each that is new to it over all its links but the one that it came over, and remembers the
last of them, so that none comes back. Bounded: what piles up on a link loses its oldest, which would come
too late to be found in a record.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

_MAX_KNOWN: Final = 4096
_MAX_DUE: Final = 256
#: What goes over a link at once, and how often: some times what a host may send of the tail.
_MAX_BATCH: Final = 16
_PERIOD_NS: Final = 100_000_000
#: What one is told that has just come.
_MAX_TOLD: Final = 64
_MAX_LETTERS: Final = 512
_WHYS: Final = frozenset({"slow", "failed", "found"})


class KeptOp(NamedTuple):
    """One op: a collective by the name of its group and its number there, else '' and its trace."""

    group: str
    number: int
    why: str


class KeptOps:
    """What one node knows of them, what its links have still to be told, and its own host."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int], KeptOp] = OrderedDict()
        self._due: dict[int, deque[KeptOp]] = {}
        self._news: deque[KeptOp] = deque(maxlen=_MAX_DUE)
        self._next_ns = 0

    def add_link(self, link: int) -> None:
        """Somebody new: it is told the last ones."""
        last = list(self._known.values())[-_MAX_TOLD:]
        self._due[link] = deque(last, maxlen=_MAX_DUE)

    def drop_link(self, link: int) -> None:
        self._due.pop(link, None)

    def keep(self, keeps: Iterable[KeptOp]) -> None:
        """Tell all other hosts what this one keeps."""
        for one in keeps:
            self._add(one, None)

    def take(self, link: int, batch: object) -> None:
        """What another node tells. ValueError for what `batches` does not make."""
        if not isinstance(batch, list) or len(batch) > _MAX_BATCH:
            raise ValueError("not ops to be kept")
        for found in batch:
            match found:
                case [str() as group, int() as number, str() as why] if (
                    why in _WHYS and len(group) <= _MAX_LETTERS and 0 <= number < 1 << 128
                ):
                    one = KeptOp(group, number, why)
                    if self._add(one, link):
                        self._news.append(one)
                case _:
                    raise ValueError("not an op to be kept")

    def take_news(self) -> list[KeptOp]:
        """What others have told since this was asked last."""
        news = list(self._news)
        self._news.clear()
        return news

    def due_ns(self) -> int | None:
        """When `batches` has something; None: nothing is due."""
        return self._next_ns if any(self._due.values()) else None

    def batches(self, now_ns: int) -> list[tuple[int, list[Any]]]:
        """What goes out now, by link."""
        if now_ns < self._next_ns or not any(self._due.values()):
            return []
        self._next_ns = now_ns + _PERIOD_NS
        return [
            (link, [list(due.popleft()) for _ in range(min(len(due), _MAX_BATCH))])
            for link, due in self._due.items()
            if due
        ]

    def _add(self, one: KeptOp, source: int | None) -> bool:
        """Whether it is new here."""
        key = one.group, one.number
        if key in self._known:
            return False
        self._known[key] = one
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        for link, due in self._due.items():
            if link != source:
                due.append(one)
        return True
