"""One link of the tree as bytes on a socket: frames, the handshake, bounds, and what waits to be written.

A frame is its length (4 bytes, little endian) and that many bytes. Nothing here blocks and nothing waits
without a deadline: the handshake has one, and so has the silence after it.

Frames of pipes are bulk: they go when nothing else waits, and little of them lies in the kernel, so
that an order, a ping or a row never waits for more than one of them.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import Final

from distdbg.hosts.handshake import MAX_GREETING_NBYTES, Handshake, NotTrusted
from distdbg.hosts.messages import MAX_MESSAGE_NBYTES
from distdbg.secure.guard import Guard, why_ended

_S: Final = 1_000_000_000
GREETING_NS: Final = 5 * _S
#: A peer that says nothing for as long is taken for dead: pings and pongs go every second.
SILENCE_NS: Final = 5 * _S
#: No more updates are made for a parent while as much waits for it.
MAX_WAITING_NBYTES: Final = 64 << 10
#: A link that does not take its orders is cut.
MAX_STUCK_NBYTES: Final = 4 << 20
#: Nor is one that does not take what its pipes bring: a window of each, and some words.
MAX_BULK_NBYTES: Final = 8 << 20
#: What the kernel takes before it is sent.
_UNSENT_NBYTES: Final = 64 << 10
_READ_NBYTES: Final = 64 << 10
_LENGTH_NBYTES: Final = 4
#: How TLS begins, and what a server that speaks it says in clear to a client that does not.
_TLS: Final = b"\x16\x03"
NEEDS_TLS: Final = b"distdbgT"


class LinkLost(Exception):
    """Why a link ended. is_wrong: the other end is not what it should be, so somebody should know."""

    def __init__(self, why: str, *, is_wrong: bool = False) -> None:
        super().__init__(why)
        self.is_wrong = is_wrong


class Link:
    """A connected, or connecting, socket of ours, and the handshake of this end."""

    def __init__(
        self, number: int, sock: socket.socket, handshake: Handshake, peer: str, now_ns: int
    ) -> None:
        self.number = number
        self.peer = peer
        self.handshake = handshake
        self.is_up = handshake.node is not None
        """Whether the other end is the parent."""
        self.is_connecting = self.is_up
        self._sock = sock
        self._in = bytearray()
        self._out = bytearray()
        self._bulk: deque[bytes] = deque()
        self._bulk_nbytes = 0
        self._deadline_ns = now_ns + GREETING_NS
        first = handshake.first()
        if first is not None:
            self.write(first)

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def is_open(self) -> bool:
        return self.handshake.is_done

    @property
    def wants_write(self) -> bool:
        return self.is_connecting or bool(self._out or self._bulk)

    @property
    def is_stuck(self) -> bool:
        return len(self._out) > MAX_WAITING_NBYTES

    @property
    def deadline_ns(self) -> int:
        return self._deadline_ns

    def close(self) -> None:
        self._sock.close()

    def write(self, message: bytes) -> None:
        self._out += len(message).to_bytes(_LENGTH_NBYTES, "little") + message

    def write_bulk(self, message: bytes) -> None:
        """Queue a frame behind all others, and behind those that are still to come."""
        self._bulk.append(message)
        self._bulk_nbytes += len(message)

    def check(self, now_ns: int) -> None:
        """LinkLost when the other end is too slow."""
        if now_ns > self._deadline_ns:
            raise LinkLost("it has been silent for too long")
        if len(self._out) > MAX_STUCK_NBYTES or self._bulk_nbytes > MAX_BULK_NBYTES:
            raise LinkLost("it does not read")

    def flush(self) -> None:
        """Write what the socket takes. LinkLost."""
        if self.is_connecting:
            code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise LinkLost(OSError(code, "not connected").strerror or "not connected")
            try:
                self._sock.getpeername()
            except OSError:
                return  # not yet
            self.is_connecting = False
        while self._out or self._bulk:
            if not self._out:
                message = self._bulk.popleft()
                self._bulk_nbytes -= len(message)
                self.write(message)
            try:
                sent = self._sock.send(self._out)
            except BlockingIOError:
                return
            except OSError as error:
                raise LinkLost(str(error)) from error
            del self._out[:sent]

    def read(self, now_ns: int) -> list[bytes]:
        """The messages that have come; those of the handshake are answered here. LinkLost."""
        try:
            data = self._sock.recv(_READ_NBYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            why = why_ended(self._sock)
            raise LinkLost(why or str(error), is_wrong=bool(why) and not self.is_open) from error
        if not data:
            why = why_ended(self._sock)
            raise LinkLost(why or "it closed the link", is_wrong=bool(why) and not self.is_open)
        self._in += data
        if not self.is_open and self._in.startswith(_TLS):
            raise LinkLost("it speaks TLS, and DISTDBG_TLS is not set here", is_wrong=True)
        if not self.is_open and self._in.startswith(NEEDS_TLS):
            raise LinkLost("it speaks TLS: set DISTDBG_TLS=1 here as well", is_wrong=True)
        messages = []
        while (frame := self._next_frame()) is not None:
            if self.is_open:
                messages.append(frame)
                continue
            try:
                answer = self.handshake.take(frame)
            except NotTrusted as error:
                raise LinkLost(str(error), is_wrong=True) from error
            if answer is not None:
                self.write(answer)
        if self.is_open:
            self._deadline_ns = now_ns + SILENCE_NS
        return messages

    def _next_frame(self) -> bytes | None:
        if len(self._in) < _LENGTH_NBYTES:
            return None
        length = int.from_bytes(self._in[:_LENGTH_NBYTES], "little")
        if length > (MAX_MESSAGE_NBYTES if self.is_open else MAX_GREETING_NBYTES):
            raise LinkLost(f"it sends a frame of {length:,} bytes", is_wrong=True)
        end = _LENGTH_NBYTES + length
        if len(self._in) < end:
            return None
        frame = bytes(self._in[_LENGTH_NBYTES:end])
        del self._in[:end]
        return frame


def hurry(sock: socket.socket) -> None:
    """Let small frames go at once, and large ones wait here instead of in the kernel."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_NBYTES)


def secure(sock: socket.socket, guard: Guard | None, *, is_server: bool) -> socket.socket:
    """The socket to use in place of this one; what it takes before it is sent is as little."""
    if guard is None:
        return sock
    inner = guard.wrap(sock, is_server=is_server)
    inner.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNSENT_NBYTES)
    return inner


def listen(address: str, backlog: int = 64) -> socket.socket:
    """A socket that listens on this address alone, at a free port. OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((address, 0))
        listener.listen(backlog)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(address: str, port: int, from_address: str) -> socket.socket:
    """A socket that begins to connect, from the address that this host is known by. OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        hurry(sock)
        if from_address:
            sock.bind((from_address, 0))
        sock.connect((address, port))
    except BlockingIOError:
        pass
    except BaseException:
        sock.close()
        raise
    return sock
