"""The thread that carries the bytes of all encrypted connections of this process; none where there are none.

    native code, or a socket of Python's  <-->  Channel  <-->  network

One thread for all: it begins with the first guard, and ends with the last one and its connections.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from distdbg.native import TcpRelay
from distdbg.secure.channel import Channel, Scratch
from distdbg.secure.contexts import TlsContexts

_log = logging.getLogger("distdbg.secure")

#: What the other end of a connection may take to accept what was sent last, when all is to end.
_FLUSH_S: Final = 2.0
_MAX_EVENTS: Final = 64


@dataclass(eq=False, slots=True)
class ConnectionSource:
    """Where connections come from: one server, or one client."""

    native: TcpRelay
    contexts: TlsContexts
    notice: bytes
    silence_s: float
    is_web: bool = False
    channels: set[Channel] = field(default_factory=set)
    is_open: bool = True

    @property
    def is_over(self) -> bool:
        """Whether nothing is, or will be, carried for it."""
        return not self.is_open and not self.channels and self.native.is_empty


class Relay:
    def __init__(self, first: ConnectionSource) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._sources = {first}
        self._added = [first]
        self._cut: list[ConnectionSource] = []
        self._is_ending = False
        self.is_over = False
        self._epoll.register(self._bell, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="distdbg-tls", daemon=True)
        self._thread.start()

    def add(self, source: ConnectionSource) -> bool:
        """False: this thread is about to end; take another."""
        with self._lock:
            if self.is_over or self._is_ending:
                return False
            self._sources.add(source)
            self._added.append(source)
        self._ring()
        return True

    def remove(self, source: ConnectionSource, *, flushes: bool) -> None:
        """No more connections of it. `flushes`: nobody uses those that it has; what was sent leaves first."""
        source.native.close()
        with self._lock:
            source.is_open = False
        self._ring()
        if threading.current_thread() is self._thread:
            return
        if flushes:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self.is_over
                        or (
                            source.native.is_empty
                            and all(each.is_flushed for each in tuple(source.channels))
                        )
                    ),
                    _FLUSH_S,
                )
                self._cut.append(source)
            self._ring()
            with self._changed:
                self._changed.wait_for(
                    lambda: self.is_over or source not in self._sources, _FLUSH_S
                )
        with self._lock:
            is_last = all(each.is_over for each in self._sources)
        if is_last:
            self._thread.join(_FLUSH_S)

    def finish(self) -> None:
        """The process ends: what was sent leaves, within a moment."""
        with self._lock:
            sources = tuple(self._sources)
            self._is_ending = True
        self._ring()
        if threading.current_thread() is not self._thread and sources:
            self._thread.join(_FLUSH_S)

    def forget(self) -> None:
        """Forget the thread, which a child does not have."""
        if self.is_over:
            return  # its descriptors are closed, and their numbers are others' by now
        self._epoll.close()
        os.close(self._bell)
        self.is_over = True

    def _ring(self) -> None:
        with self._lock:
            if not self.is_over:
                os.eventfd_write(self._bell, 1)

    # The thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        loop = _Loop(self._epoll, self._lock)
        while True:
            with self._changed:
                for source in self._added:
                    loop.watch(source)
                self._added.clear()
                for source in self._cut:
                    loop.cut(source)
                self._cut.clear()
                for source in [s for s in self._sources if s.is_over]:
                    self._sources.discard(source)
                    loop.unwatch(source)
                self._changed.notify_all()
                is_flushed = self._is_ending and loop.is_flushed()
                if is_flushed or (not self._sources and not self._added):
                    self.is_over = True
                    for source in self._sources:
                        source.native.release()
                    loop.close()
                    self._epoll.close()
                    os.close(self._bell)
                    return
            for fd, events in self._epoll.poll(loop.wait_s(self._is_ending), _MAX_EVENTS):
                if fd == self._bell:
                    os.eventfd_read(self._bell)
                else:
                    loop.on_event(fd, events)
            loop.check()


class _Loop:
    """What the thread alone knows."""

    def __init__(self, epoll: select.epoll, lock: threading.Lock) -> None:
        self._epoll = epoll
        self._lock = lock
        self._scratch = Scratch()
        self._source_at: dict[int, ConnectionSource] = {}
        self._channel_at: dict[int, tuple[Channel, ConnectionSource]] = {}
        self._watched: dict[int, int] = {}
        self._timed: set[Channel] = set()
        self._has_complained = False

    def watch(self, source: ConnectionSource) -> None:
        self._source_at[source.native.fd] = source
        self._epoll.register(source.native.fd, select.EPOLLIN)

    def unwatch(self, source: ConnectionSource) -> None:
        if self._source_at.pop(source.native.fd, None) is not None:
            self._epoll.unregister(source.native.fd)
        source.native.release()

    def cut(self, source: ConnectionSource) -> None:
        for channel in tuple(source.channels):
            self._forget(channel, source)

    def is_flushed(self) -> bool:
        """Whether nothing that was sent is still inside."""
        is_flushed = True
        for channel, source in set(self._channel_at.values()):
            is_flushed &= channel.flush(time.monotonic())
            self._update(channel, source)
        return is_flushed

    def close(self) -> None:
        for channel, source in set(self._channel_at.values()):
            self._forget(channel, source)

    def wait_s(self, is_ending: bool) -> float:
        first = min((c.deadline for c in self._timed if c.deadline is not None), default=None)
        longest = 0.02 if is_ending else 3600.0
        return longest if first is None else min(longest, max(0.0, first - time.monotonic()))

    def on_event(self, fd: int, events: int) -> None:
        source = self._source_at.get(fd)
        if source is not None:
            self._take(source)
            return
        found = self._channel_at.get(fd)
        if found is None:
            return  # it ended in this round
        channel, source = found
        try:
            channel.on_event(fd, events, time.monotonic())
        except Exception as error:  # noqa: BLE001  # else the thread of all connections ends
            self._give_up(channel, error)
        self._update(channel, source)

    def check(self) -> None:
        now = time.monotonic()
        for channel in tuple(self._timed):
            if channel.deadline is not None and channel.deadline <= now:
                _, source = self._channel_at[channel.network]
                channel.check(now)
                self._update(channel, source)

    def _give_up(self, channel: Channel, error: Exception) -> None:
        self._complain(error)
        channel.give_up(error)

    def _complain(self, error: Exception) -> None:
        if not self._has_complained:
            self._has_complained = True
            _log.warning("an encrypted connection is cut", exc_info=error)

    def _take(self, source: ConnectionSource) -> None:
        while (channel := self._begin_next(source)) is not None:
            for fd in (channel.inside, channel.network):
                self._channel_at[fd] = (channel, source)
            self._update(channel, source)

    def _begin_next(self, source: ConnectionSource) -> Channel | None:
        while True:
            try:
                return self._begin(source)
            except Exception as error:  # noqa: BLE001  # as above: out of memory, or of descriptors
                self._complain(error)

    def _begin(self, source: ConnectionSource) -> Channel | None:
        """Nobody sees a connection that is neither waiting nor carried."""
        contexts = source.contexts
        with self._lock:
            relayed = source.native.take()
            if relayed is None:
                return None
            try:
                channel = Channel(
                    relayed,
                    (contexts.web if source.is_web else contexts.server)
                    if relayed.is_server
                    else contexts.client,
                    self._scratch,
                    time.monotonic(),
                    silence_s=source.silence_s,
                    notice=source.notice,
                )
            except BaseException:
                relayed.close()
                raise
            source.channels.add(channel)
            return channel

    def _update(self, channel: Channel, source: ConnectionSource) -> None:
        if channel.is_done:
            self._forget(channel, source)
            return
        if channel.deadline is None:
            self._timed.discard(channel)
        else:
            self._timed.add(channel)
        for fd in (channel.inside, channel.network):
            wanted, watched = channel.interest(fd), self._watched.get(fd)
            if wanted == watched:
                continue
            if wanted is None:
                del self._watched[fd]
                self._epoll.unregister(fd)
                continue
            if watched is None:
                self._epoll.register(fd, wanted)
            else:
                self._epoll.modify(fd, wanted)
            self._watched[fd] = wanted

    def _forget(self, channel: Channel, source: ConnectionSource) -> None:
        for fd in (channel.inside, channel.network):
            self._channel_at.pop(fd, None)
            if self._watched.pop(fd, None) is not None:
                self._epoll.unregister(fd)
        self._timed.discard(channel)
        source.channels.discard(channel)
        channel.release()


# One for each process.
_relay: Relay | None = None
_lock = threading.Lock()


def add_source(source: ConnectionSource) -> Relay:
    """The relay that carries it from now on."""
    global _relay
    with _lock:
        if _relay is None or not _relay.add(source):
            _relay = Relay(source)
        return _relay


def _finish() -> None:
    if _relay is not None:
        _relay.finish()


def _in_child() -> None:
    global _relay, _lock
    _lock = threading.Lock()
    if _relay is not None:
        _relay.forget()
        _relay = None


os.register_at_fork(after_in_child=_in_child)
atexit.register(_finish)
