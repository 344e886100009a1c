"""Ports for servers that a test starts."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from typing import Final

#: Below those from which the system takes one for whoever connects to somebody: such a port may be
#: taken by anybody in the moment before the server of the test listens on it.
_PORTS: Final = range(10_000, 32_000)


def free_port(host: str = "127.0.0.1") -> int:
    """One that nobody has at this moment, and that nobody is given who does not ask for it."""
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            return port
    raise OSError(f"no port of {host} is free among those that were tried")
