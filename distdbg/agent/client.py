"""The other end of the local API: what commands and dashboards use to ask an agent."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from distdbg.agent import protocol
from distdbg.agent.protocol import MOST_ANSWER_NBYTES, PROTOCOL
from distdbg.control import sockets
from distdbg.errors import ConfigError, DistNetworkError


class AgentError(DistNetworkError):
    """The agent refused a request; `type` is its word for why."""

    def __init__(self, what: str, *, type: str = "", hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.type = type


class AgentClient:
    """A connection to one agent. DistNetworkError when it does not answer in time."""

    def __init__(self, sock: socket.socket, name: str, token: bytes, timeout_s: float) -> None:
        self._socket = sock
        self._name = name
        self._timeout_s = timeout_s
        self._inbox = bytearray()
        self._events: list[dict[str, Any]] = []
        self._last_id = 0
        #: The server's first line: run, host, pid, protocol.
        self.hello = self._greet(token)

    @classmethod
    def at(cls, path: Path, *, timeout_s: float = 5.0) -> Self:
        """Connect to a Unix socket."""
        try:
            sock = sockets.connect(path, timeout_s)
        except OSError as error:
            raise DistNetworkError(f"no agent answers at {path}: {error.strerror}") from error
        return cls(sock, str(path), b"", timeout_s)

    @classmethod
    def over_tcp(cls, host: str, port: int, token: bytes, *, timeout_s: float = 5.0) -> Self:
        """Connect to an agent that was told to listen."""
        try:
            sock = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise DistNetworkError(f"no agent answers at {host}:{port}: {error}") from error
        return cls(sock, f"{host}:{port}", token, timeout_s)

    def ask(self, do: str, *, timeout_s: float | None = None, **arguments: Any) -> Any:
        """Send a request and return its result; events that come before it are kept."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        self._last_id += 1
        self._send({"id": self._last_id, "do": do, **arguments})
        while True:
            words = self._read(deadline)
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
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _greet(self, token: bytes) -> dict[str, Any]:
        try:
            deadline = time.monotonic() + self._timeout_s
            hello = self._read(deadline)
            if hello.get("distdbg") != "agent":
                raise DistNetworkError(f"{self._name} is no agent of distdbg")
            if hello.get("protocol") != PROTOCOL:
                raise ConfigError(
                    f"the agent at {self._name} speaks protocol {hello.get('protocol')}, "
                    f"this distdbg speaks {PROTOCOL}"
                )
            if "nonce" in hello:
                self._prove(token, str(hello["nonce"]), deadline)
        except BaseException:
            self.close()
            raise
        return hello

    def _prove(self, token: bytes, nonce: str, deadline: float) -> None:
        try:
            self._send({"proof": protocol.prove(token, nonce)})
            self._read(deadline)
        except AgentTimeout:
            raise
        except DistNetworkError as error:
            raise DistNetworkError(
                f"the agent at {self._name} does not accept the token",
                hint="give the token of the run; distdbg run takes it from DISTDBG_TOKEN where that is set",
            ) from error

    def _send(self, words: dict[str, Any]) -> None:
        try:
            self._socket.sendall(protocol.encode(words))
        except OSError as error:
            raise DistNetworkError(f"the agent at {self._name} is gone: {error}") from error

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._inbox:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise AgentTimeout(f"the agent at {self._name} did not answer in time")
            self._socket.settimeout(left_s)
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError as error:
                raise DistNetworkError(f"the agent at {self._name} is gone: {error}") from error
            if not data:
                raise DistNetworkError(f"the agent at {self._name} closed the connection")
            self._inbox += data
            if len(self._inbox) > MOST_ANSWER_NBYTES + (1 << 16):
                raise DistNetworkError(f"{self._name} says more than an agent does")
        line, _, rest = self._inbox.partition(b"\n")
        self._inbox = rest
        try:
            words = json.loads(line)
        except ValueError:
            words = None
        if not isinstance(words, dict):
            raise DistNetworkError(f"{self._name} is no agent of distdbg")
        return words


class AgentTimeout(DistNetworkError, TimeoutError):
    """No line came in time."""


def _to_error(words: Any) -> AgentError:
    facts = words if isinstance(words, dict) else {}
    return AgentError(
        str(facts.get("what", "the agent refused")),
        type=str(facts.get("type", "")),
        hint=facts.get("hint"),
    )
