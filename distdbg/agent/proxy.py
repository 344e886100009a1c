"""Two sockets joined into one connection, in the agent's loop: a client and the debugger of a rank.

Neither side blocks. Data that one side does not read is buffered up to a bound; then the other side is not
read. When one ends, the other gets the rest of the data and ends too.
"""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import suppress
from typing import Final

MAX_PAIRS: Final = 64
MAX_WAITING_NBYTES: Final = 64 << 10
#: How long a side may take its last bytes.
LAST_NS: Final = 10_000_000_000


class _Side:
    __slots__ = ("is_open", "out", "socket")

    def __init__(self, sock: socket.socket, out: bytes) -> None:
        self.socket = sock
        self.out = bytearray(out)
        self.is_open = True
        """Whether it may still say something."""


class _ProxiedPair:
    __slots__ = ("last_ns", "sides")

    def __init__(self, one: _Side, other: _Side) -> None:
        self.sides = (one, other)
        self.last_ns = 0


class ProxiedConnections:
    """All connections that one agent joins."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._pairs: set[_ProxiedPair] = set()

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def are_full(self) -> bool:
        return len(self._pairs) >= MAX_PAIRS

    def join(
        self, one: socket.socket, other: socket.socket, to_one: bytes, to_other: bytes
    ) -> None:
        """Take both sockets over; what each is to get before anything else."""
        for sock in (one, other):
            sock.setblocking(False)
        pair = _ProxiedPair(_Side(one, to_one), _Side(other, to_other))
        self._pairs.add(pair)
        self._move(pair)

    def tick(self, now_ns: int) -> None:
        """End those that take too long to end."""
        for pair in list(self._pairs):
            if pair.last_ns and now_ns > pair.last_ns:
                self._close(pair)

    def close(self) -> None:
        for pair in list(self._pairs):
            self._close(pair)

    def _serve(self, pair: _ProxiedPair, side: _Side, mask: int) -> None:
        if pair not in self._pairs:
            return
        one, other = pair.sides
        across = other if side is one else one
        if (
            mask & selectors.EVENT_READ
            and side.is_open
            and len(across.out) < MAX_WAITING_NBYTES
            and not pair.last_ns
        ):
            try:
                data = side.socket.recv(MAX_WAITING_NBYTES)
            except BlockingIOError:
                data = None
            except OSError:
                data = b""
            if data:
                across.out += data
            elif data is not None:
                side.is_open = False
                pair.last_ns = time.monotonic_ns() + LAST_NS
        self._move(pair)

    def _move(self, pair: _ProxiedPair) -> None:
        one, other = pair.sides
        for side in pair.sides:
            try:
                while side.out:
                    del side.out[: side.socket.send(side.out)]
            except BlockingIOError:
                pass
            except OSError:
                self._close(pair)
                return
        for side, across in ((one, other), (other, one)):
            if not side.is_open and not across.out:
                self._close(pair)
                return
        for side, across in ((one, other), (other, one)):
            may_read = not pair.last_ns and len(across.out) < MAX_WAITING_NBYTES
            self._watch(
                pair,
                side,
                (selectors.EVENT_READ if may_read else 0)
                | (selectors.EVENT_WRITE if side.out else 0),
            )

    def _watch(self, pair: _ProxiedPair, side: _Side, events: int) -> None:
        known = self._selector.get_map().get(side.socket)
        if known is None:
            if events:
                self._selector.register(
                    side.socket, events, lambda mask: self._serve(pair, side, mask)
                )
        elif not events:
            self._selector.unregister(side.socket)
        elif known.events != events:
            self._selector.modify(side.socket, events, known.data)

    def _close(self, pair: _ProxiedPair) -> None:
        self._pairs.discard(pair)
        for side in pair.sides:
            with suppress(KeyError, ValueError):
                self._selector.unregister(side.socket)
            side.socket.close()
