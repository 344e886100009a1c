"""RecordingFeed: wraps any feed, and writes what it shows to a file.

It is written by a thread, once a second where something has changed, so a slow disk slows nothing that is
seen. The file may be read by its owner alone: it has command lines, paths and what ranks printed. It ends
where it is as large as it may be, or when nothing more can be written; the dashboard continues and
shows that.
"""

from __future__ import annotations

import gzip
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from distdbg.errors import UsageError
from distdbg.tui.recording.written import VERSION, bar_line, changes, log_line, whole
from distdbg.view.feed import Action, Feed, Topic
from distdbg.view.snapshot import (
    Bar,
    FeedLink,
    LogRow,
    OpDetail,
    OpKey,
    RankDetail,
    Snapshot,
    Stacks,
)

#: How large a file may become.
MAX_NBYTES: Final = 1 << 30
_EVERY_S: Final = 1.0
#: After so many lines a whole snapshot again: from there on a damaged file can be read.
_FULL_EVERY: Final = 60
_FLUSH_S: Final = 2.0
_CLOSE_S: Final = 5.0
#: Without what only its own view wants, a replay would have empty views.
_TOPICS: Final = frozenset({Topic.GROUPS, Topic.OPS, Topic.WAITS, Topic.LOG})
_MAX_NEW_LINES: Final = 2000


class RecordingFeed:
    def __init__(
        self,
        feed: Feed,
        path: Path,
        *,
        is_forced: bool = False,
        most_nbytes: int = MAX_NBYTES,
        every_s: float = _EVERY_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """UsageError when the file is there already, or cannot be made."""
        self._feed = feed
        self._path = path
        self._every_s = every_s
        self._clock = clock
        self._file = _File(path, is_forced=is_forced, most_nbytes=most_nbytes)
        self._taken: Snapshot | None = None
        self._taken_at = float("-inf")
        self._bars: dict[int, dict[int, Bar]] = {}
        self._new_bars: dict[int, dict[int, Bar]] = {}
        self._queue: queue.SimpleQueue[Snapshot | None] = queue.SimpleQueue()
        self._waiting = 0
        self._reported: tuple[Snapshot, Snapshot] | None = None
        self.trouble = ""
        """Why nothing more is written; ''. For people."""
        self._thread = threading.Thread(target=self._run, name="distdbg recording", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------- Feed

    @property
    def title(self) -> str:
        return self._feed.title

    @property
    def can_change(self) -> bool:
        return self._feed.can_change

    @property
    def address(self) -> str:
        return self._feed.address

    @property
    def folder(self) -> Path | None:
        """Where the job can be replayed from, if the feed knows it."""
        folder = getattr(self._feed, "folder", None)
        return folder if isinstance(folder, Path) else None

    def latest(self) -> Snapshot:
        snapshot = self._feed.latest()
        now = self._clock()
        is_due = not 0 <= now - self._taken_at < self._every_s
        is_last = snapshot.link is FeedLink.OVER
        if snapshot is not self._taken and (is_due or is_last) and self._waiting < 2:
            self._taken, self._taken_at = snapshot, now
            self._waiting += 1
            self._queue.put(snapshot)
        return self._with_trouble(snapshot)

    def _with_trouble(self, snapshot: Snapshot) -> Snapshot:
        """One that says so where the recording has ended; the same one for the same."""
        if not self.trouble:
            return snapshot
        if self._reported is None or self._reported[0] is not snapshot:
            why = "; ".join(text for text in (snapshot.link_why, self.trouble) if text)
            self._reported = snapshot, replace(snapshot, link_why=why)
        return self._reported[1]

    def want(self, topics: frozenset[Topic]) -> None:
        self._feed.want(topics if self.trouble else topics | _TOPICS)

    def bars(self, ranks: Sequence[int], begin: float, end: float) -> Mapping[int, Sequence[Bar]]:
        found = self._feed.bars(ranks, begin, end)
        for rank, bars in found.items():
            known = self._bars.setdefault(rank, {})
            for bar in bars:
                if bar.number and known.get(bar.number) is not bar and known.get(bar.number) != bar:
                    known[bar.number] = bar
                    self._new_bars.setdefault(rank, {})[bar.number] = bar
            if len(known) > 10_000:
                self._bars[rank] = dict(list(known.items())[-5000:])
        return found

    def log(self) -> Sequence[LogRow]:
        return self._feed.log()

    def op(self, key: OpKey) -> OpDetail | None:
        return self._feed.op(key)

    def rank(self, rank: int) -> RankDetail | None:
        return self._feed.rank(rank)

    def stacks(self, ranks: Sequence[int] | None, native: bool) -> Stacks:
        return self._feed.stacks(ranks, native)

    def do(self, action: Action, **words: object) -> str:
        return self._feed.do(action, **words)

    def span(self) -> tuple[float, float] | None:
        return self._feed.span()

    def seek(self, at: float) -> None:
        self._feed.seek(at)

    def close(self) -> None:
        """Write what is left; the file is whole then."""
        if self._thread.is_alive():
            snapshot = self._feed.latest()
            if snapshot is not self._taken:
                self._queue.put(snapshot)
            self._queue.put(None)
            self._thread.join(_CLOSE_S)
        self._feed.close()

    @property
    def said(self) -> str:
        """What became of it, for when the dashboard is left."""
        if self.trouble:
            return f"{self._path}: {self.trouble}"
        return f"Wrote {self._path}"

    # ------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            self._write_all()
            self._file.close()
        except OSError as error:
            self.trouble = f"recording stopped: {error.strerror or error}"
            with suppress(OSError):
                self._file.close()

    def _write_all(self) -> None:
        before, lines, last_line = Snapshot(), 0, None
        head = {
            "distdbg": "dashboard", "version": VERSION, "run": self._feed.latest().run,
            "title": self._feed.title, "at": round(self._clock(), 6),
        }  # fmt: skip
        self._file.write(head)
        while (snapshot := self._queue.get()) is not None:
            self._waiting = max(self._waiting - 1, 0)
            at = round(snapshot.at or self._clock(), 6)
            if lines % _FULL_EVERY == 0:
                self._file.write({"at": at, "full": whole(snapshot)})
            elif reported := changes(before, snapshot):
                self._file.write({"at": at, "set": reported})
            lines, before = lines + 1, snapshot
            new = _after(self._feed.log(), last_line)
            if new:
                last_line = new[-1]
                self._file.write({"at": at, "log": [log_line(row) for row in new]})
            bars, self._new_bars = self._new_bars, {}
            if bars:
                written_bars = {
                    str(r): [bar_line(bar) for bar in of.values()] for r, of in bars.items()
                }
                self._file.write({"at": at, "bars": written_bars})
            if self._file.is_full:
                most = self._file.most_nbytes / 2**20
                self.trouble = f"recording stopped: the file has its {most:.0f} MiB"
                self._file.write({"at": at, "end": "full"})
                return
        self._file.write({"at": round(self._clock(), 6), "end": "closed"})


def _after(rows: Sequence[LogRow], last: LogRow | None) -> Sequence[LogRow]:
    """What came after that line; of very many the newest."""
    first = 0
    if last is not None:
        for at in range(len(rows) - 1, -1, -1):
            if rows[at] is last or rows[at] == last:
                first = at + 1
                break
    return rows[max(first, len(rows) - _MAX_NEW_LINES) :]


class _File:
    """Lines of JSON, of the owner alone."""

    def __init__(self, path: Path, *, is_forced: bool, most_nbytes: int) -> None:
        if path.is_dir():
            raise UsageError(f"--record {path}: is a folder", hint="give the name of a file")
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(path, flags | (os.O_TRUNC if is_forced else os.O_EXCL), 0o600)
        except FileExistsError:
            raise UsageError(
                f"--record {path}: already exists", hint="--force replaces it"
            ) from None
        except OSError as error:
            raise UsageError(f"--record {path}: cannot be written: {error.strerror}") from None
        self.most_nbytes = most_nbytes
        self._raw: IO[bytes] = os.fdopen(fd, "wb")
        self._file: IO[bytes] = self._raw
        if path.name.endswith(".gz"):
            self._file = gzip.GzipFile("", "wb", 6, self._raw, 0)  # type: ignore[assignment]  # it writes bytes
        self._flushed_at = time.monotonic()

    @property
    def is_full(self) -> bool:
        return self._raw.tell() >= self.most_nbytes

    def write(self, entry: dict[str, Any]) -> None:
        """One line; OSError."""
        text = json.dumps(entry, separators=(",", ":"), ensure_ascii=True)
        self._file.write(text.encode() + b"\n")
        now = time.monotonic()
        if now - self._flushed_at >= _FLUSH_S:
            self._flushed_at = now
            self._file.flush()
            self._raw.flush()

    def close(self) -> None:
        self._file.close()
        self._raw.close()
