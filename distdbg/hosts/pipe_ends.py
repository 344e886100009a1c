"""The sockets at this host's ends of the tree's pipes, moved by the tree's thread.

At the origin it is the socket of a client, which the agent's loop gives away once the other end has
accepted. At the target it is one of a pair, whose other one the agent's loop serves as if a client had
connected: the tree has asked for the token.

No end is waited for. What one does not take is at most a window, then its other end is told no more.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from distdbg.hosts.pipes import (
    MAX_DATA_NBYTES,
    PipeAccepted,
    PipeData,
    PipeEnded,
    PipeKey,
    PipeOpened,
    Pipes,
)

#: How long an end that is over may take its last bytes.
_LAST_NS: Final = 10_000_000_000


@dataclass(frozen=True, slots=True)
class PipeAnswer:
    """What became of a pipe that was begun here; why not, or ''."""

    key: PipeKey
    why: str


@dataclass(frozen=True, slots=True)
class PipedClient:
    """A client on another host, whose bytes come through the tree."""

    socket: socket.socket
    by: str


PipeMail = PipeAnswer | PipedClient


@dataclass(slots=True, eq=False)
class PipeEnd:
    key: PipeKey
    socket: socket.socket | None = None
    """None: the client is about to be given."""
    out: bytearray = field(default_factory=bytearray)
    unsent: bytes = b""
    """What the client had said before it was given, and there was no room for."""
    foreign: int = 0
    """How many of the first bytes of `out` did not come through the pipe."""
    last_ns: int = 0
    """When it is closed at the latest; 0: it is not over."""
    at_line_start: bool = True


class PipeEnds:
    """All ends of this host. For the tree's thread alone."""

    def __init__(
        self,
        node: int,
        pipes: Pipes,
        lock: threading.Lock,
        selector: selectors.BaseSelector,
        post: Callable[[PipeMail], None],
    ) -> None:
        """lock: protects `pipes`. post: tell the agent's loop."""
        self._node = node
        self._pipes = pipes
        self._lock = lock
        self._selector = selector
        self._post = post
        self._ends: dict[PipeKey, PipeEnd] = {}

    def turn(self, now_ns: int) -> None:
        """Do what has come over the links."""
        with self._lock:
            news = self._pipes.take_news()
        for one in news:
            match one:
                case PipeOpened(key, by):
                    self._open(key, by)
                case PipeAccepted(key):
                    self._ends[key] = PipeEnd(key)
                    self._post(PipeAnswer(key, ""))
                case PipeData(key, data):
                    self._arrive(key, data)
                case PipeEnded(key, why):
                    self._end(key, why, now_ns)
        for end in list(self._ends.values()):
            if end.last_ns and now_ns > end.last_ns:
                self._close(end)
            else:
                self._move(end)

    def join(self, key: PipeKey, sock: socket.socket, unwritten: bytes, unsent: bytes) -> None:
        """The client of a pipe that was accepted: what it has still to get first, and what it said."""
        end = self._ends.get(key)
        if end is None or end.socket is not None:
            sock.close()
            return
        end.socket = sock
        end.out[:0] = unwritten
        end.foreign = len(unwritten)
        end.unsent = unsent

    def give_up(self, key: PipeKey) -> None:
        """Nobody will join it."""
        with self._lock:
            self._pipes.end(key)
        end = self._ends.get(key)
        if end is not None:
            self._close(end)

    def serve(self, end: PipeEnd, mask: int) -> None:
        """Its socket is ready."""
        if self._ends.get(end.key) is not end or end.socket is None:
            return
        if mask & selectors.EVENT_READ and not end.last_ns:
            self._read(end)
        if self._ends.get(end.key) is end:
            self._move(end)

    def close(self, why: str) -> None:
        """All of them, with a word for the clients here; no link is served any more."""
        for end in list(self._ends.values()):
            if end.socket is not None and not end.last_ns:
                self._end(end.key, why, 1)
                with suppress(OSError):
                    end.socket.send(end.out)
            self._close(end)

    # Parts --------------------------------------------------------------------------------------

    def _open(self, key: PipeKey, by: str) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self._ends[key] = PipeEnd(key, ours)
        self._post(PipedClient(theirs, by))
        with self._lock:
            self._pipes.accept(key)

    def _arrive(self, key: PipeKey, data: bytes) -> None:
        end = self._ends.get(key)
        if end is not None and not end.last_ns:
            end.out += data
            end.at_line_start = data.endswith(b"\n")

    def _end(self, key: PipeKey, why: str, now_ns: int) -> None:
        end = self._ends.get(key)
        if end is None:
            self._post(PipeAnswer(key, why or "it was closed"))
            return
        end.last_ns = now_ns + _LAST_NS
        if why and key.origin == self._node:
            line = json.dumps({"ended": why}).encode() + b"\n"
            end.out += line if end.at_line_start else b"\n" + line

    def _read(self, end: PipeEnd) -> None:
        assert end.socket is not None
        with self._lock:
            room = self._pipes.room(end.key)
        if room <= 0 or end.unsent:
            return
        try:
            data = end.socket.recv(min(room, MAX_DATA_NBYTES))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        with self._lock:
            if data:
                self._pipes.send(end.key, data)
            else:
                self._pipes.end(end.key)
        if not data:
            self._close(end)

    def _move(self, end: PipeEnd) -> None:
        """Write what there is, and wait for what may come next."""
        if end.socket is None:
            return
        if not self._write(end):
            with self._lock:
                self._pipes.end(end.key)
            self._close(end)
            return
        with self._lock:
            room = self._pipes.room(end.key)
            if end.unsent and room > 0:
                self._pipes.send(end.key, end.unsent[:room])
                end.unsent = end.unsent[room:]
                room = self._pipes.room(end.key)
        if end.last_ns and not end.out:
            self._close(end)
            return
        may_read = room > 0 and not end.unsent and not end.last_ns
        self._watch(
            end,
            (selectors.EVENT_READ if may_read else 0) | (selectors.EVENT_WRITE if end.out else 0),
        )

    def _write(self, end: PipeEnd) -> bool:
        """Whether its socket is still there."""
        assert end.socket is not None
        taken = 0
        try:
            while end.out:
                sent = end.socket.send(end.out)
                del end.out[:sent]
                own = min(sent, end.foreign)
                end.foreign -= own
                taken += sent - own
        except BlockingIOError:
            pass
        except OSError:
            return False
        with self._lock:
            self._pipes.take(end.key, taken)  # nothing, when the pipe has ended
        return True

    def _watch(self, end: PipeEnd, events: int) -> None:
        assert end.socket is not None
        known = self._selector.get_map().get(end.socket)
        if known is None:
            if events:
                self._selector.register(end.socket, events, end)
        elif not events:
            self._selector.unregister(end.socket)
        elif known.events != events:
            self._selector.modify(end.socket, events, end)

    def _close(self, end: PipeEnd) -> None:
        del self._ends[end.key]
        if end.socket is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(end.socket)
            end.socket.close()
