"""The client of the local API, used by commands and dashboards."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from distdbg.client import protocol
from distdbg.client.protocol import MAX_ANSWER_NBYTES, PROTOCOL
from distdbg.control import dialled_address, sockets
from distdbg.errors import ConfigError, DistNetworkError, UsageError
from distdbg.secure.guard import open_guard, why_ended

#: How long the last word of an agent that is gone may take: it has been said.
_LAST_WORD_S = 0.1


class AgentError(DistNetworkError):
    """The agent refused a request; `type` is its word for why."""

    def __init__(self, what: str, *, type: str = "", hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.type = type


class AgentClient:
    """A connection to one agent. DistNetworkError when it does not answer in time."""

    def __init__(
        self,
        sock: socket.socket,
        name: str,
        timeout_s: float,
        *,
        key: bytes | None = None,
        dialled: str = "",
    ) -> None:
        """`key`: not None over TCP, where both ends prove that they have it; `dialled`: where."""
        self._dialled = dialled
        self._socket = sock
        self._is_given = False
        """Whether the socket is somebody else's by now."""
        self._name = name
        self._timeout_s = timeout_s
        self._inbox = bytearray()
        self._events: list[dict[str, Any]] = []
        self._last_id = 0
        #: The server's first line: run, host, pid, protocol.
        self.hello = self._greet(key)

    @classmethod
    def at(cls, path: Path, *, timeout_s: float = 5.0) -> Self:
        """Connect to a Unix socket."""
        try:
            sock = sockets.connect(path, timeout_s)
        except OSError as error:
            raise DistNetworkError(f"no agent answers at {path}: {error.strerror}") from error
        return cls(sock, str(path), timeout_s)

    @classmethod
    def over_tcp(cls, host: str, port: int, key: bytes, *, timeout_s: float = 5.0) -> Self:
        """Connect to an agent that listens; `key`: what the run's token is derived from."""
        try:
            sock = socket.create_connection((host, port), timeout_s)
            dialled = dialled_address.show(dialled_address.peer_address(sock))
        except OSError as error:
            raise DistNetworkError(f"no agent answers at {host}:{port}: {error}") from error
        try:
            guard = open_guard(key)
        except BaseException:
            sock.close()
            raise
        if guard is not None:
            sock = guard.wrap(sock, is_server=False)
            guard.release()
        return cls(sock, f"{host}:{port}", timeout_s, key=key, dialled=dialled)

    def ask(self, do: str, *, timeout_s: float | None = None, **arguments: Any) -> Any:
        """Send a request and return its result; events that come before it are kept."""
        return self._ask(do, timeout_s, arguments)

    def via(self, host: str = "", *, rank: int | None = None) -> AgentClient:
        """Speak with the agent of another host, or of the host of a rank, on this connection.

        This client is of no more use. AgentError when there is no way there.
        """
        words = {"host": host} if rank is None else {"rank": rank}
        name = f"{host or f'the host of rank {rank}'}, by way of {self._name}"
        return AgentClient(self._become("via", words), name, self._timeout_s)

    def debug(self, rank: int) -> socket.socket:
        """The connection becomes one with the debugger of a rank of any host of the job.

        This client is of no more use. AgentError when the rank cannot be debugged.
        """
        client = self.via(rank=rank)
        try:
            sock = client._become("debug", {"rank": rank})
        except BaseException:
            client.close()
            raise
        sock.settimeout(None)
        return sock

    def _become(self, do: str, arguments: dict[str, Any]) -> socket.socket:
        """The socket, which says nothing of this agent any more."""
        if self._inbox or self._events:
            raise UsageError("a connection with a subscription cannot be forwarded")
        self._ask(do, None, arguments, is_last=True)
        self._is_given = True
        return self._socket

    def _ask(
        self, do: str, timeout_s: float | None, arguments: dict[str, Any], *, is_last: bool = False
    ) -> Any:
        if "id" in arguments:
            raise ValueError("'id' is the number of the request; a breakpoint's is 'breakpoint'")
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        self._last_id += 1
        self._send({"id": self._last_id, "do": do, **arguments})
        while True:
            words = self._read(deadline, is_last=is_last)
            if words.get("id") != self._last_id or "event" in words:
                if "event" in words:
                    self._events.append(words)
                continue
            if "error" in words:
                raise _to_error(words["error"])
            return words.get("ok")

    def events(self, timeout_s: float) -> Iterator[Any]:
        """The events of subscriptions as they come, until none comes for `timeout_s`."""
        while True:
            while self._events:
                yield self._events.pop(0)["event"]
            try:
                words = self._read(time.monotonic() + timeout_s)
            except TimeoutError:
                return
            if "event" in words:
                self._events.append(words)

    def close(self) -> None:
        if not self._is_given:
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _greet(self, key: bytes | None) -> dict[str, Any]:
        try:
            deadline = time.monotonic() + self._timeout_s
            hello = self._read(deadline)
            if hello.get("distdbg") != "agent":
                raise DistNetworkError(f"{self._name} is no agent of distdbg")
            if hello.get("tls"):
                raise ConfigError(
                    f"the agent at {self._name} speaks TLS, and this process does not",
                    hint="set DISTDBG_TLS=1 here as well",
                )
            if hello.get("protocol") != PROTOCOL:
                raise ConfigError(
                    f"the agent at {self._name} speaks protocol {hello.get('protocol')}, "
                    f"this distdbg speaks {PROTOCOL}"
                )
            if key is not None:
                token = protocol.agent_token(key, str(hello.get("run")))
                self._prove(token, hello, deadline)
        except BaseException:
            self.close()
            raise
        return hello

    def _prove(self, token: bytes, hello: dict[str, Any], deadline: float) -> None:
        """Say nothing but a nonce before the agent has proven itself."""
        proof = protocol.Proof(token, str(hello.get("run")), str(hello.get("nonce")))
        try:
            proof.client_nonce, proof.dialled = protocol.make_nonce(), self._dialled
            self._send({"nonce": proof.client_nonce, "dialled": self._dialled})
            answer = self._read(deadline)
            if "error" in answer:
                raise _Elsewhere(_to_error(answer["error"]).what)
            if not proof.is_of("server", answer):
                raise DistNetworkError("its proof is wrong")
            self._send({"proof": proof.of("client")})
            answer = self._read(deadline)
        except AgentTimeout:
            raise
        except _Elsewhere as error:
            raise DistNetworkError(
                f"the server at {self._name} refuses the proof: {error.what}",
                details=["something in between forwards connections to it"],
                hint="where that is a tunnel or NAT of yours, set DISTDBG_SERVED_AS to the IP:PORT that "
                "is dialled, for the job",
            ) from error
        except (DistNetworkError, OSError) as error:
            raise DistNetworkError(
                f"the agent at {self._name} does not have the token of this user, or does not accept it",
                hint="set DISTDBG_TOKEN to what the job was started with; distdbg run takes it from there",
            ) from error
        if "error" in answer:
            raise _to_error(answer["error"])

    def _send(self, words: dict[str, Any]) -> None:
        if self._is_given:
            raise UsageError(f"the connection with {self._name} was forwarded and cannot be used")
        try:
            self._socket.sendall(protocol.encode(words))
        except OSError as error:
            with suppress(AgentTimeout):  # it may have said why
                while True:
                    self._read(time.monotonic() + _LAST_WORD_S)
            raise DistNetworkError(f"the agent at {self._name} is gone: {error}") from error

    def _read(self, deadline: float, *, is_last: bool = False) -> dict[str, Any]:
        """The next line; is_last: what follows it is not for this client, and stays in the socket."""
        while b"\n" not in self._inbox:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise AgentTimeout(f"the agent at {self._name} did not answer in time")
            self._socket.settimeout(left_s)
            try:
                if is_last:
                    seen = self._socket.recv(1 << 16, socket.MSG_PEEK)
                    data = self._socket.recv(seen.find(b"\n") + 1 or len(seen)) if seen else b""
                else:
                    data = self._socket.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError as error:
                why = why_ended(self._socket) or error
                raise DistNetworkError(f"the agent at {self._name} is gone: {why}") from error
            if not data and (why := why_ended(self._socket)):
                raise DistNetworkError(f"the agent at {self._name} cannot be asked: {why}")
            if not data:
                raise DistNetworkError(f"the agent at {self._name} closed the connection")
            self._inbox += data
            if len(self._inbox) > MAX_ANSWER_NBYTES + (1 << 16):
                raise DistNetworkError(f"{self._name} sends more than an agent does")
        line, _, rest = self._inbox.partition(b"\n")
        self._inbox = rest
        try:
            words = json.loads(line)
        except ValueError:
            words = None
        if not isinstance(words, dict):
            raise DistNetworkError(f"{self._name} is no agent of distdbg")
        if "ended" in words and "id" not in words:
            raise DistNetworkError(f"the agent at {self._name} is gone: {words['ended']}")
        return words


class _Elsewhere(DistNetworkError):
    """The agent is not where it was dialled."""


class AgentTimeout(DistNetworkError, TimeoutError):
    """No line came in time."""


def _to_error(words: Any) -> AgentError:
    facts = words if isinstance(words, dict) else {}
    return AgentError(
        str(facts.get("what", "the agent refused")),
        type=str(facts.get("type", "")),
        hint=facts.get("hint"),
    )
