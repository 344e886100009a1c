"""The file that each rank keeps on its host from the first moment of a meeting to its end.

The store knows a rank only once it has reached it and announced itself. One that dies before would be
missed until the timeout, so it writes down first who it is, in a file of a folder that only this user can
enter, and the others of this host look now and then whether there is one whose process is gone.

A killed rank removes nothing. So a file counts only when it was written since this process started, and
since the last meeting of this process ended: what an earlier run left is none of ours, and is removed by
the next one. Where a launcher serves the store it watches its ranks itself, and nobody writes a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from distdbg.errors import ConfigError
from distdbg.runtime.rendezvous.outcome import JoinedRank, member_from_json, member_to_json
from distdbg.runtime.rendezvous.process import is_gone
from distdbg.runtime.rendezvous.published_store import private_folder

_SIZE_LIMIT = 4096
_NAME = re.compile(r"[0-9a-f]{32}\.rank\d+")
#: So long ranks of the same meeting may look for those that died.
_KEPT_NS = 600 * 1_000_000_000
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Presence:
    """The files of one meeting on this host, as one of its ranks sees them."""

    #: When the last meeting of this process ended, on the clock of the boot.
    _last_end_ns = 0

    def __init__(self, where: str, me: JoinedRank, folder: str | None = None) -> None:
        self._me = me
        self._prefix = hashlib.sha256(where.encode()).hexdigest()[:32] + ".rank"
        # The kernel rounds the start down: up, so that what is older never counts.
        self._born_ns = (me.process.started + 1) * _TICK_NS
        self._folder = folder
        if folder is None:
            with suppress(ConfigError, OSError):  # the meeting does without
                self._folder = private_folder()

    @contextmanager
    def announced(self) -> Iterator[None]:
        """In this block the others can see that this rank is gone."""
        self.announce()
        try:
            yield
        finally:
            self.withdraw()
            Presence._last_end_ns = _now_ns()

    def announce(self) -> None:
        """Write down that this process is a rank of the meeting."""
        if self._folder is not None:
            now_ns = _now_ns()
            self._clear(now_ns)
            _write(str(self._path(self._me.rank)), _Entry(self._me, now_ns, now_ns))

    def withdraw(self) -> None:
        """Take it back, unless another process is that rank meanwhile."""
        path = self._path(self._me.rank)
        found = None if path is None else _read(path)
        if path is not None and found is not None and found.member.process == self._me.process:
            with suppress(OSError):
                os.unlink(path)

    def _clear(self, now_ns: int) -> None:
        """Remove what ranks of other meetings left that were killed long ago."""
        for path in self._files(""):
            found = _read(path)
            is_old = found is not None and found.seen_ns < now_ns - _KEPT_NS
            if found is not None and is_old and is_gone(found.member.process, self._me.process):
                with suppress(OSError):
                    os.unlink(path)

    def _files(self, prefix: str) -> Iterator[str]:
        """Those of the meetings whose names begin so."""
        try:
            names = sorted(os.listdir(self._folder)) if self._folder is not None else []
        except OSError:
            return
        for name in names:
            if name.startswith(prefix) and _NAME.fullmatch(name):
                yield os.path.join(str(self._folder), name)

    def find_dead(self) -> JoinedRank | None:
        """A rank of this host that came to this meeting and is gone."""
        for path in self._files(self._prefix):
            found = _read(path)
            if (
                found is not None
                and found.seen_ns >= self._born_ns
                and found.written_ns >= Presence._last_end_ns
                and is_gone(found.member.process, self._me.process)
            ):
                # For ranks that were started after it was written.
                _write(path, replace(found, seen_ns=_now_ns()))
                return found.member
        return None

    def _path(self, rank: int) -> str | None:
        return None if self._folder is None else os.path.join(self._folder, f"{self._prefix}{rank}")


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class _Entry:
    member: JoinedRank
    written_ns: int
    seen_ns: int
    """When somebody last wrote it down: the rank itself, or another that saw its death."""


def _write(path: str, entry: _Entry) -> None:
    text = json.dumps([member_to_json(entry.member), entry.written_ns, entry.seen_ns])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError):
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _read(path: str) -> _Entry | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_SIZE_LIMIT)
    try:
        member, written_ns, seen_ns = json.loads(content)
        return _Entry(member_from_json(member), int(written_ns), int(seen_ns))
    except (ValueError, KeyError, TypeError, AssertionError):
        return None  # just being written, or by another version
