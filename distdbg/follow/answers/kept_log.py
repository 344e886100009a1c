"""Output of the ranks of this host, merged by time.

The launcher keeps it in plain files; here they are read when somebody asks, never otherwise, and no more of
them than `_MAX_NBYTES` at a time: of a file that grows faster only the end is read. Lines are numbered as
they are merged, and the newest `_KEPT` stay; a client says which it has seen last. A line is a little late:
it waits for equal ones of other ranks, with which it is one line.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Container, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from distdbg.launch.output_streams import StdStreams
from distdbg.launch.outputs.kept import KeptFile, find_kept
from distdbg.launch.outputs.merged import Folded, Merger
from distdbg.launch.outputs.timed import TimedFile

MAX_LINES: Final = 2000
_KEPT: Final = 5000
_MAX_LETTERS: Final = 2000
#: Read of one file, when somebody asks first, and when it grows faster than it is read.
_TAIL_NBYTES: Final = 1 << 16
#: Read of all files, each time that somebody asks.
_MAX_NBYTES: Final = 1 << 20
#: How long a line waits for equal ones of other ranks.
_HOLD_NS: Final = 500_000_000
_WINDOW_NS: Final = 1_000_000_000
_FIND_NS: Final = 1_000_000_000
#: After which the files are closed when nobody asks any more.
_IDLE_NS: Final = 60 * 10**9

#: As short as the smallest terminal is wide.
NOT_KEPT: Final = "no output is kept; `distdbg run --tee 3` or `--redirects 3` keeps it"


class Numbered(NamedTuple):
    """A line as it is kept here."""

    number: int
    line: Folded


class KeptLog:
    """The output of one start of the ranks."""

    def __init__(self, folder: Path, attempt: int) -> None:
        self._folder = folder
        self._attempt = attempt
        self._sources: list[TimedFile] = []
        self._merger = Merger(0, window_ns=_WINDOW_NS)
        self._known: set[Path] = set()
        #: Where files were left that have been closed meanwhile.
        self._offsets: dict[Path, int] = {}
        self._lines: deque[Numbered] = deque(maxlen=_KEPT)
        self._last = 0
        self._found_ns = -_FIND_NS
        self._asked_ns = 0
        self._passed_nbytes = 0
        self._is_kept = False

    def describe(
        self,
        ranks: Container[int],
        *,
        now_ns: int,
        wall_ns: int,
        after: int = 0,
        most: int = 500,
        only: Container[int] | None = None,
    ) -> dict[str, Any]:
        """The newest lines after number `after`: `ranks` are those of this host, `only` those asked for."""
        self._asked_ns = now_ns
        self._find(ranks, now_ns)
        self._read()
        self._merge(wall_ns - _HOLD_NS)
        new = list(islice(_fitting(reversed(self._lines), after, only), most))[::-1]
        first = self._lines[0].number if self._lines else self._last + 1
        return {
            "lines": [_plain(one) for one in new],
            "next": self._last,
            "is_kept": self._is_kept,
            "why": "" if self._is_kept else NOT_KEPT,
            "is_cut": bool(self._passed_nbytes) or bool(after and first > after + 1),
        }

    def rest(self, now_ns: int) -> None:
        """Close the files when nobody has asked for long."""
        if self._sources and now_ns - self._asked_ns > _IDLE_NS:
            self._offsets = {one.file.path: one.offset for one in self._sources}
            self.close()
            self._known.clear()
            self._found_ns = -_FIND_NS

    def close(self) -> None:
        for source in self._sources:
            source.close()
        self._sources.clear()
        self._merger = Merger(0, window_ns=_WINDOW_NS)

    def _find(self, ranks: Container[int], now_ns: int) -> None:
        if now_ns - self._found_ns < _FIND_NS:
            return
        self._found_ns = now_ns
        for file in find_kept(self._folder, known=self._known):
            if file.attempt != self._attempt:
                continue
            self._is_kept = True
            # Hosts that share a folder have their files in it side by side; whose a file is stands in
            # its index, which the launcher writes as soon as there is something in the file.
            if file.times is not None and file.rank in ranks:
                with suppress(OSError):  # removed since it was found
                    self._open(file)

    def _open(self, file: KeptFile) -> None:
        zone_ns = time.localtime().tm_gmtoff * 10**9
        source = TimedFile(file, local_zone_ns=zone_ns)
        known = self._offsets.pop(file.path, None)
        source.begin_at(max(0, source.size() - _TAIL_NBYTES) if known is None else known)
        source.follow()
        self._known.add(file.path)
        self._sources.append(source)
        self._merger.add_source()

    def _read(self) -> None:
        left = _MAX_NBYTES
        for index, source in enumerate(self._sources):
            with suppress(OSError):
                behind = source.size() - source.offset
                if behind > max(_TAIL_NBYTES, left):
                    self._passed_nbytes += behind - _TAIL_NBYTES
                    source.begin_at(source.size() - _TAIL_NBYTES)
                before = source.offset
                for line in source.read(is_over=False) or ():
                    self._merger.put(index, line._replace(text=_shown(line.text)))
                left -= source.offset - before

    def _merge(self, until_ns: int) -> None:
        while (first_ns := self._merger.first_ns()) is not None and first_ns <= until_ns:
            folded = self._merger.take()
            assert folded is not None  # there is a first one
            self._last += 1
            self._lines.append(Numbered(self._last, folded))


def _fitting(
    lines: Iterable[Numbered], after: int, only: Container[int] | None
) -> Iterable[Numbered]:
    """From the newest back to `after`."""
    for one in lines:
        if one.number <= after:
            return
        if only is None or any(rank in only for rank in one.line.ranks):
            yield one


def _shown(text: str) -> str:
    # What a terminal would show of a progress bar.
    return text.rstrip("\r").rpartition("\r")[2][:_MAX_LETTERS]


def _plain(one: Numbered) -> dict[str, Any]:
    line = one.line
    return {
        "number": one.number,
        "at_ns": line.time_ns,
        "ranks": list(line.ranks),
        "stream": "err" if line.stream is StdStreams.ERR else "out",
        "text": line.text,
    }
