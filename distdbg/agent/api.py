"""The server of the local API: sockets, buffers and limits. `Methods` has the answers.

No client can block or grow it: lines and buffers are bounded. It drops clients that do not read, clients
over TCP that do not prove the token, and other users on the Unix socket. The Unix
socket, clients over TCP that have proven themselves, and those that have not have places of their own; of
too many that have not, the oldest goes.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from distdbg.client import protocol
from distdbg.client.protocol import MAX_REQUEST_NBYTES, BadLine, Request
from distdbg.control import dialled_address, sockets
from distdbg.errors import ConfigError, DistNetworkError
from distdbg.secure.guard import Guard, open_guard

#: The most clients over each way to come in.
MAX_CLIENTS: Final = 64
#: Over TCP, that have not proven themselves yet.
MAX_UNPROVEN: Final = 32
#: What is read of a client before its proof.
MAX_GREETING_NBYTES: Final = 1024
#: What one client may leave unread.
MAX_UNREAD_NBYTES: Final = 2 * protocol.MAX_ANSWER_NBYTES
#: How long a client may read nothing while there is something for it, and may take to prove itself.
PATIENCE_S: Final = 10.0
PROOF_S: Final = 5.0

Answer = Callable[[bytes], None]
#: "other": it came to another agent of the job.
Way = Literal["unix", "tcp", "other"]


class QueryAnswers(Protocol):
    """What the server asks for the answers."""

    def do(self, request: Request, client: ApiClient) -> None:
        """Answer now or later, with `client.send`. Must not raise."""
        ...

    def gone(self, client: ApiClient) -> None:
        """The client is not there any more."""
        ...


class ReleasedConnection(NamedTuple):
    """A connection that the server serves no more."""

    socket: socket.socket
    unwritten: bytes
    """What it has still to get."""
    unread: bytes
    """What it has said, and nobody has answered."""


class ApiClient:
    """One connection of a client of the API."""

    __slots__ = (
        "_inbox", "_outbox", "_server", "proof", "proof_by_ns", "served_at", "socket", "stuck_ns", "way",
    )  # fmt: skip

    def __init__(
        self,
        server: ApiServer,
        sock: socket.socket,
        way: Way,
        proof: protocol.Proof | None,
        served_at: str = "",
    ) -> None:
        self._server = server
        self.socket = sock
        self.way: Way = way
        """How it has come in."""
        self.proof = proof
        """Not None: it has not proved itself yet."""
        self.served_at = served_at
        """This end of a connection over TCP."""
        self.proof_by_ns = time.monotonic_ns() + int(PROOF_S * 1e9)
        self.stuck_ns = 0
        """Since when it has taken nothing that is there for it; 0: it takes all."""
        self._inbox = bytearray()
        self._outbox = bytearray()

    def send(self, line: bytes) -> None:
        """Put a line on its way; a client that leaves too much unread is dropped."""
        if self not in self._server.clients:
            return  # it did not wait for its answer
        self._outbox += line
        if len(self._outbox) > MAX_UNREAD_NBYTES:
            self._server.drop(self)
        else:
            self.flush()

    @property
    def has_unread(self) -> bool:
        return bool(self._outbox)

    def flush(self) -> None:
        try:
            while self._outbox:
                sent = self.socket.send(self._outbox[: 1 << 18])
                del self._outbox[:sent]
                self.stuck_ns = 0
        except BlockingIOError:
            self.stuck_ns = self.stuck_ns or time.monotonic_ns()
        except OSError:
            self._server.drop(self)
            return
        self._server.set_interest(self)

    def receive(self) -> bool:
        """Read what has come, for `take_line`; False: it is gone."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._inbox += data
        return bool(data)

    def take_line(self) -> bytes | None:
        """The next whole line, b"" when there is none; None: it says more than it may."""
        while (end := self._inbox.find(b"\n")) >= 0:
            if end > self._most_nbytes:
                return None
            line = bytes(self._inbox[:end])
            del self._inbox[: end + 1]
            if line.strip():
                return line
        return b"" if len(self._inbox) <= self._most_nbytes else None

    @property
    def _most_nbytes(self) -> int:
        return MAX_REQUEST_NBYTES if self.proof is None else MAX_GREETING_NBYTES

    def release(self) -> ReleasedConnection:
        """What is to go on without the server."""
        return ReleasedConnection(self.socket, bytes(self._outbox), bytes(self._inbox))


class ApiServer:
    """Listens on a Unix socket and, when asked, on TCP; driven by the selector of its owner."""

    def __init__(
        self, selector: selectors.BaseSelector, answers: QueryAnswers, *, run: str, host: str
    ) -> None:
        self._selector = selector
        self._answers = answers
        self._run, self._host = run, host
        self._listening: list[socket.socket] = []
        self._path: Path | None = None
        self._token = b""
        self._guard: Guard | None = None
        self._served_as: frozenset[str] = frozenset()
        self.clients: set[ApiClient] = set()

    # ------------------------------------------------------------------------------- opening, closing

    def listen_unix(self, path: Path) -> None:
        """Listen at `path`; a socket that nobody serves any more is replaced.

        ConfigError when somebody serves it, or it cannot be made.
        """
        sock = sockets.listen(path)
        self._path = path
        self._add(sock)

    def listen_tcp(self, host: str, port: int, key: bytes) -> int:
        """Listen on an interface for clients that have the key; returns the port."""
        self._served_as = frozenset(map(dialled_address.show, dialled_address.read_served_as()))
        if not key:
            raise ConfigError("the agent does not listen on TCP without a token")
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sock = socket.create_server((host, port), family=family, backlog=16)
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                from distdbg.runtime.store.holder import holder_of

                why = f"the port is held by {holder_of(port)}"
            raise ConfigError(
                f"the agent cannot listen on {host}:{port}: {why}",
                hint="--agent-listen takes another port; the job and the local socket work without it",
            ) from error
        sock.setblocking(False)
        try:
            self._guard = open_guard(key, notice=protocol.speaks_tls())
        except BaseException:
            sock.close()
            raise
        self._token = protocol.agent_token(key, self._run)
        self._add(sock)
        return int(sock.getsockname()[1])

    def close(self) -> None:
        """Drop all clients and remove the socket."""
        for client in list(self.clients):
            self.drop(client)
        for sock in self._listening:
            self._selector.unregister(sock)
            sock.close()
        self._listening.clear()
        if self._guard is not None:
            self._guard.release()
        if self._path is not None:
            sockets.is_served(self._path)  # removes the name, unless another agent has taken it

    def drop(self, client: ApiClient) -> None:
        if client not in self.clients:
            return
        self.clients.remove(client)
        self._selector.unregister(client.socket)
        client.socket.close()
        self._answers.gone(client)

    def release(self, client: ApiClient) -> ReleasedConnection | None:
        """Give a connection away; None when it has ended."""
        if client not in self.clients:
            return None
        self.clients.remove(client)
        self._selector.unregister(client.socket)
        return client.release()

    def adopt(self, sock: socket.socket) -> None:
        """Serve a connection that has shown elsewhere that it may ask."""
        if self._count("other") >= MAX_CLIENTS:
            sock.close()
        else:
            self._welcome(sock, "other", None)

    # ------------------------------------------------------------------------------- what happens

    def tick(self, now_ns: int) -> None:
        """Drop who takes too long."""
        for client in list(self.clients):
            is_stuck = client.stuck_ns and now_ns - client.stuck_ns > PATIENCE_S * 1e9
            if is_stuck or (client.proof is not None and now_ns > client.proof_by_ns):
                self.drop(client)

    def set_interest(self, client: ApiClient) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.has_unread else 0)
        key = self._selector.get_key(client.socket)
        if key.events != events:
            self._selector.modify(client.socket, events, key.data)

    def _add(self, sock: socket.socket) -> None:
        self._listening.append(sock)
        self._selector.register(sock, selectors.EVENT_READ, lambda _: self._accept(sock))

    def _accept(self, listening: socket.socket) -> None:
        try:
            sock, _ = listening.accept()
        except OSError:
            return
        sock.setblocking(False)
        is_tcp = listening.family != socket.AF_UNIX
        if is_tcp:
            self._make_room()
            try:
                served_at = dialled_address.show(dialled_address.own_address(sock))
            except OSError:  # it is gone already
                sock.close()
                return
            if self._guard is not None:
                sock = self._guard.wrap(sock, is_server=True)
            proof = protocol.Proof(self._token, self._run, protocol.make_nonce())
            self._welcome(sock, "tcp", proof, served_at)
        elif self._count("unix") < MAX_CLIENTS and sockets.is_same_user(sock):
            self._welcome(sock, "unix", None)
        else:
            sock.close()

    def _count(self, way: Way) -> int:
        """Those that have a place of their own."""
        return sum(client.way == way and client.proof is None for client in self.clients)

    def _make_room(self) -> None:
        """Drop the oldest connection that has proven nothing, for one more."""
        unproven = [client for client in self.clients if client.proof is not None]
        if len(unproven) >= MAX_UNPROVEN:
            self.drop(min(unproven, key=lambda client: client.proof_by_ns))

    def _welcome(
        self, sock: socket.socket, way: Way, proof: protocol.Proof | None, served_at: str = ""
    ) -> None:
        client = ApiClient(self, sock, way, proof, served_at)
        self.clients.add(client)
        self._selector.register(sock, selectors.EVENT_READ, lambda mask: self._serve(client, mask))
        nonce = None if proof is None else proof.server_nonce
        client.send(protocol.hello(self._run, self._host, os.getpid(), nonce))

    def _serve(self, client: ApiClient, mask: int) -> None:
        if client not in self.clients:
            return
        if mask & selectors.EVENT_WRITE:
            client.flush()
        # A client that does not read its answers gets no further ones.
        if not mask & selectors.EVENT_READ or client not in self.clients:
            return
        is_there = client.receive()
        while client in self.clients:  # a request may end it, or make it another's
            line = client.take_line()
            if not line:
                if line is None or not is_there:
                    self.drop(client)
                return
            if client.proof is not None:
                if not self._prove(client, client.proof, line):
                    self.drop(client)
                    return
                continue
            try:
                request = protocol.read_request(line)
            except BadLine as error:
                client.send(protocol.refuse(error.id, error))
                continue
            self._answers.do(request, client)

    def _prove(self, client: ApiClient, proof: protocol.Proof, line: bytes) -> bool:
        """Take a line of a client that has not proven itself; False when it is to be dropped."""
        words = protocol.read_words(line)
        if not proof.client_nonce:
            if not proof.take_challenge(words):
                return False
            if proof.dialled not in {client.served_at, *self._served_as}:
                client.send(protocol.refuse(None, DistNetworkError(protocol.ELSEWHERE)))
                return False
            client.send(protocol.encode({"proof": proof.of("server")}))
            return True
        if not proof.is_of("client", words):
            return False
        if self._count("tcp") >= MAX_CLIENTS:
            client.send(protocol.refuse(None, DistNetworkError("it has too many clients")))
            return False
        client.proof = None
        client.send(protocol.encode({"ok": True}))
        return True
