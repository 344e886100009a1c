"""What each rank leaves on its host from the first moment of a meeting to its end: a seat.

The store knows a rank only once it has reached it and announced itself. One that dies before would be
missed until the timeout, so it writes down first who it is, in a file of a folder that only this user can
enter, and the others of this host look now and then whether a seat is there whose process is gone.

A killed rank removes nothing. So a seat counts only when it was taken since this process started, and
since the last meeting of this process ended: what an earlier run left is none of ours. Where a launcher
serves the store it watches its ranks itself, and nobody takes a seat.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from distdbg.errors import ConfigError
from distdbg.runtime.rendezvous.process import is_gone
from distdbg.runtime.rendezvous.spot import private_folder
from distdbg.runtime.rendezvous.verdict import Member, member_from_json, member_to_json

_SIZE_LIMIT = 4096
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Seats:
    """The seats of one meeting on this host, as one of its ranks sees them."""

    #: When the last meeting of this process ended, on the clock of the boot.
    _last_end_ns = 0

    def __init__(self, where: str, me: Member, folder: str | None = None) -> None:
        self._me = me
        self._prefix = hashlib.sha256(where.encode()).hexdigest()[:32] + ".rank"
        # The kernel rounds the start down: up, so that what is older never counts.
        self._born_ns = (me.process.started + 1) * _TICK_NS
        self._folder = folder
        if folder is None:
            with suppress(ConfigError, OSError):  # the meeting does without
                self._folder = private_folder()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """In this block the others can see that this rank is gone."""
        self.take()
        try:
            yield
        finally:
            self.leave()
            Seats._last_end_ns = _now_ns()

    def take(self) -> None:
        """Write down that this process is a rank of the meeting."""
        if self._folder is not None:
            now_ns = _now_ns()
            _write(str(self._path(self._me.rank)), _Seat(self._me, now_ns, now_ns))

    def leave(self) -> None:
        """Take it back, unless another process has taken the place meanwhile."""
        path = self._path(self._me.rank)
        found = None if path is None else _read(path)
        if path is not None and found is not None and found.member.process == self._me.process:
            with suppress(OSError):
                os.unlink(path)

    def find_dead(self) -> Member | None:
        """A rank of this host that came to this meeting and is gone."""
        try:
            names = sorted(os.listdir(self._folder)) if self._folder is not None else []
        except OSError:
            return None
        for name in names:
            if not name.startswith(self._prefix):
                continue
            path = os.path.join(str(self._folder), name)
            found = _read(path)
            if (
                found is not None
                and found.told_ns >= self._born_ns
                and found.taken_ns >= Seats._last_end_ns
                and is_gone(found.member.process, self._me.process)
            ):
                # For ranks that were started after it was taken.
                _write(path, replace(found, told_ns=_now_ns()))
                return found.member
        return None

    def _path(self, rank: int) -> str | None:
        return None if self._folder is None else os.path.join(self._folder, f"{self._prefix}{rank}")


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class _Seat:
    member: Member
    taken_ns: int
    told_ns: int
    """When somebody last wrote it down: the rank itself, or another that saw its death."""


def _write(path: str, seat: _Seat) -> None:
    text = json.dumps([member_to_json(seat.member), seat.taken_ns, seat.told_ns])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError):
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _read(path: str) -> _Seat | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_SIZE_LIMIT)
    try:
        member, taken_ns, told_ns = json.loads(content)
        return _Seat(member_from_json(member), int(taken_ns), int(told_ns))
    except (ValueError, KeyError, TypeError, AssertionError):
        return None  # just being written, or by another version
