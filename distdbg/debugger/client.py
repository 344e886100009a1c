"""The other end of a rank's debugger: a connection over any socket that leads there."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from distdbg.debugger import protocol
from distdbg.debugger.protocol import MalformedLine, Words
from distdbg.errors import ConfigError, DistNetworkError
from distdbg.record.durations import duration_text

#: How long a server may take to say the first line: a rank that holds the GIL takes longer.
_HELLO_S: Final = 5.0


class DebugClient:
    """A connection to the debugger of one rank, over any socket that leads there."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        hello_s: float = _HELLO_S,
        on_slow: Callable[[str], None] | None = None,
    ) -> None:
        """DistNetworkError when nobody speaks there, in time or at all.

        `on_slow` is told when it takes longer than usual; only then is `hello_s` long.
        """
        self._socket = sock
        self._inbox = bytearray()
        self._lines: list[bytes] = []
        self._lock = threading.Lock()  # protects what is sent
        try:
            self.hello = self._greet(hello_s, on_slow)
        except BaseException:
            sock.close()
            raise

    @property
    def rank(self) -> int:
        return int(self.hello.get("rank", -1))

    @property
    def is_stopped(self) -> bool:
        """Whether it was at a prompt when the connection was made."""
        return self.hello.get("state") == "stopped"

    @property
    def is_debuggable(self) -> bool:
        """Whether a client may come while the rank runs."""
        return bool(self.hello.get("debuggable"))

    def send(self, words: Words) -> None:
        """DistNetworkError when the rank is gone."""
        data = protocol.encode(words)
        with self._lock:
            try:
                self._socket.settimeout(10.0)
                self._socket.sendall(data)
            except OSError as error:
                raise DistNetworkError(f"rank {self._name} is gone: {error}") from error

    def receive(self, timeout_s: float | None = None) -> Words:
        """What is said next; TimeoutError when that takes longer, DistNetworkError at the end."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._lines:
            left_s = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not select.select([self._socket], [], [], left_s)[0]:
                raise TimeoutError
            try:
                data = self._socket.recv(1 << 16)
            except (BlockingIOError, TimeoutError):
                continue
            except OSError as error:
                raise DistNetworkError(f"rank {self._name} is gone: {error}") from error
            if not data:
                raise DistNetworkError(f"rank {self._name} is gone")
            self._inbox += data
            try:
                self._lines = protocol.cut_lines(self._inbox)
            except MalformedLine as error:
                raise DistNetworkError(f"rank {self._name} reports {error}") from None
        try:
            return protocol.decode(self._lines.pop(0))
        except MalformedLine as error:
            raise DistNetworkError(f"rank {self._name} reports {error}") from None

    def evaluate(self, expression: str, timeout_s: float) -> dict[str, str]:
        """{"value", "type"} or {"error"}; TimeoutError when it takes longer."""
        self.send({"id": 1, "eval": expression})
        deadline = time.monotonic() + timeout_s
        while True:
            words = self.receive(max(deadline - time.monotonic(), 0.0))
            if words.get("id") == 1:
                return {key: str(words[key]) for key in ("value", "type", "error") if key in words}
            if "ended" in words:
                return {"error": str(words["ended"])}

    def go_on(self, timeout_s: float = 5.0) -> str:
        """Let the rank go on; '' or why it does not."""
        self.send({"continue": True})
        while True:
            words = self.receive(timeout_s)
            if "running" in words:
                return ""
            if "ended" in words:
                return str(words["ended"])

    def close(self) -> None:
        """Idempotent; the rank sees it as a client that has left."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> DebugClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _name(self) -> str:
        return str(self.hello.get("rank", "")) if "hello" in self.__dict__ else "of this socket"

    def _greet(self, hello_s: float, on_slow: Callable[[str], None] | None) -> Words:
        began = time.monotonic()
        while True:
            waited_s = time.monotonic() - began
            try:
                words = self.receive(min(max(hello_s - waited_s, 0.0), _HELLO_S))
                break
            except TimeoutError:
                waited_s = time.monotonic() - began
                what = f"the rank has not answered for {duration_text(waited_s)}: "
                what += "it holds the GIL, or is stopped"
                if waited_s >= hello_s:
                    hint = "distdbg stacks shows where it is"
                    raise DistNetworkError(what, hint=hint) from None
                if on_slow is not None:
                    on_slow(f"{what}; still trying")
        if words.get("distdbg") != "debugger":
            raise DistNetworkError("this is no debugger of distdbg")
        if words.get("protocol") != protocol.PROTOCOL:
            raise ConfigError(
                f"the debugger of the rank speaks protocol {words.get('protocol')}, "
                f"this distdbg speaks {protocol.PROTOCOL}"
            )
        return words
