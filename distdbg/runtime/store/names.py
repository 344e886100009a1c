"""Addresses of a host name, without waiting for a resolver that does not answer.

getaddrinfo() has no deadline of its own: it runs in a thread, which is left behind when time is up.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any, Final

#: So long a name is waited for.
LOOKUP_S: Final = 10.0

Found = list[tuple[Any, ...]]


class NoNameServer(OSError):
    """Nobody has said whether there is such a host."""


def look_up(
    host: str,
    port: int,
    *,
    limit_s: float = LOOKUP_S,
    ask: Callable[..., Found] = socket.getaddrinfo,
) -> Found:
    """What getaddrinfo() finds for TCP. OSError; NoNameServer when it has not answered by then."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        pass  # a name
    answers: list[Found | OSError] = []

    def run() -> None:
        try:
            answers.append(ask(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answers.append(error)

    thread = threading.Thread(target=run, name="distdbg-lookup", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not answers:
        what = f"no name server answers for {host!r}"
        raise NoNameServer(0, what)
    if isinstance(answers[0], OSError):
        raise answers[0]
    return answers[0]
