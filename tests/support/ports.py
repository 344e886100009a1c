"""Ports for servers that a test starts."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path
from typing import Final

#: Of these the system takes one for whoever connects to somebody, so also in the moment before the server of
#: the test listens on it.
_GIVEN: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port(host: str = "127.0.0.1") -> int:
    """One that nobody has at this moment, and that nobody is given who does not ask for it."""
    first, last = map(int, _GIVEN.read_text().split())
    others: list[int] = [*range(10_000, first), *range(last + 1, 2**16)]
    for port in random.SystemRandom().sample(others, min(len(others), 100)):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            return port
    with socket.socket() as probe:  # one that is given, where there are no others
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
