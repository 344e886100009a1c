"""What goes up a link, when, and how much of it: one node's news for its parent. Pure.

Rows wait here until they are sent; of a row that changes ten times before that, only the last is.
News (a death, a rank that got stuck) go at once, with exact times; other changes at most every
`period_ns`, the longest waiting first, and within what the parent grants: bytes and rows per second.
What is news may run into debt for a second's worth, no more. Changes of times, CPU time and memory alone
wait some seconds for company.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from distdbg.hosts.columns import Row, Schema, encode, is_reported

_S: Final = 1_000_000_000
MIN_PERIOD_NS: Final = 50_000_000
MIN_NEWS_PERIOD_NS: Final = 5_000_000
SLIGHT_PERIOD_NS: Final = 5 * _S
MAX_DEBT_NS: Final = _S
#: Until the parent has said what it grants.
FIRST_NBYTES_S: Final = 20_000
FIRST_ROWS_S: Final = 2_000
#: A batch takes no longer of the rate than this, so that news never wait long behind it.
BATCH_NS: Final = _S // 4
MAX_BATCH_ROWS: Final = 8192
MIN_BATCH_ROWS: Final = 64


@dataclass(slots=True)
class Child:
    """What a child was granted, and which counts it has."""

    nbytes_s: int = 0
    rows_s: int = 0
    period_ns: int = 0
    counts: list[Any] = field(default_factory=list)


class Updates:
    """The rows of one kind that wait to go up, and what the parent has."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._reported: dict[int, Row] = {}
        self._news: dict[int, None] = {}
        self._changes: dict[int, None] = {}  # in the order in which they began to wait
        self._slight: dict[int, None] = {}

    def mark(self, key: int, *, is_news: bool = False, is_slight: bool = False) -> None:
        """The row of this key has changed."""
        if is_news:
            self._news[key] = None
        elif is_slight:
            self._slight[key] = None
        else:
            self._changes[key] = None

    def forget(self, keys: Mapping[int, Row]) -> None:
        """Another parent: it has nothing."""
        self._reported.clear()
        self._news.clear()
        self._slight.clear()
        self._changes = dict.fromkeys(keys)

    def hurry(self) -> None:
        """Slight changes have waited long enough."""
        for key in self._slight:
            self._changes.setdefault(key)
        self._slight.clear()

    @property
    def has_news(self) -> bool:
        return bool(self._news)

    @property
    def has_changes(self) -> bool:
        return bool(self._changes)

    @property
    def has_slight(self) -> bool:
        return bool(self._slight)

    def take(
        self, rows: Mapping[int, Row], now_ns: int, most: int, *, only_news: bool
    ) -> list[Any] | None:
        """A batch of what waits, None when the parent has it all."""
        keys = list(islice(self._news, most))
        if not only_news:
            keys += islice(
                (key for key in self._changes if key not in self._news), most - len(keys)
            )
        chosen: dict[int, Row] = {}
        exact = set()
        for key in sorted(keys):
            if key in self._news:
                del self._news[key]
                exact.add(key)
            self._changes.pop(key, None)
            self._slight.pop(key, None)
            row = rows.get(key)
            if row is not None and not is_reported(
                self._schema, row, self._reported.get(key), now_ns
            ):
                chosen[key] = row
        if not chosen:
            return None
        batch, reported, snapped = encode(self._schema, chosen, self._reported, now_ns, exact=exact)
        self._reported.update(reported)
        if snapped:  # the exact times follow, of those that have not moved on by then
            self._slight.update(dict.fromkeys(chosen))
        return batch


class Pace:
    """When the next message may go, and how large it may be."""

    def __init__(self) -> None:
        self.nbytes_s = FIRST_NBYTES_S
        self.rows_s = FIRST_ROWS_S
        self.period_ns = MIN_PERIOD_NS
        self._sent_ns = -_S
        self._paid_ns = -_S
        self._slight_ns = 0
        self._row_nbytes = 8.0
        self.gap_ns: float = MIN_PERIOD_NS
        """How far apart messages have been, smoothed."""

    def end(self) -> None:
        """What goes next is the last."""
        self._sent_ns = self._paid_ns = -_S

    def news_ns(self) -> int:
        """When news may go."""
        return max(self._sent_ns + MIN_NEWS_PERIOD_NS, self._paid_ns - MAX_DEBT_NS)

    def changes_ns(self) -> int:
        return max(self._sent_ns + self.period_ns, self._paid_ns)

    def slight_ns(self) -> int:
        return self._slight_ns + SLIGHT_PERIOD_NS

    def on_slight(self, now_ns: int) -> None:
        self._slight_ns = now_ns

    def most_rows(self) -> int:
        most = min(self.nbytes_s / self._row_nbytes, self.rows_s) * BATCH_NS / _S
        return int(min(MAX_BATCH_ROWS, max(MIN_BATCH_ROWS, most)))

    def on_sent(self, nbytes: int, rows: int, now_ns: int) -> None:
        self.gap_ns += 0.2 * (min(now_ns - self._sent_ns, _S) - self.gap_ns)
        self._sent_ns = now_ns
        cost_ns = max(nbytes * _S // self.nbytes_s, rows * _S // self.rows_s)
        self._paid_ns = max(self._paid_ns, now_ns) + cost_ns
        if rows >= MIN_BATCH_ROWS:
            self._row_nbytes += 0.3 * (nbytes / rows - self._row_nbytes)
