"""What clients say to a rank's debugger, a little wrong: the next client is served all the same."""

from __future__ import annotations

import json
import random
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from distdbg.control import sockets
from distdbg.control.sockets import debugger_socket
from distdbg.debugger import protocol
from distdbg.debugger.desk import PromptInput
from distdbg.debugger.serve import PromptServer
from tests.fuzz import harness

LINES: tuple[dict[str, Any], ...] = (
    {"attach": "eva, process 99", "size": [40, 80]}, {"attach": "eva"}, {"line": "p x"},
    {"complete": ["pr", "pr", 0, 2]}, {"interrupt": True}, {"continue": True},
    {"bytes": "aGVsbG8="}, {"size": [24, 80]}, {"id": 1, "eval": "1 + 1"}, {"detach": True},
)  # fmt: skip


def one(chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server, desk = PromptServer(), PromptInput(3, "run", is_debuggable=chance.random() < 0.5)
        if chance.random() < 0.7:
            desk.begin("a breakpoint", "train.py:88 (step)")
            desk.is_waiting = chance.random() < 0.5
            desk.mode = chance.choice(("line", "terminal"))
        server.open(desk, Path(folder), lambda text: {"value": text, "type": "str"})
        path = Path(folder) / debugger_socket(3)
        try:
            for _ in range(3):
                with sockets.connect(path, 5.0) as sock:
                    _say(sock, chance)
            # Somebody who means well is greeted, and answered.
            with sockets.connect(path, 5.0) as sock, sock.makefile("rb") as answers:
                assert protocol.decode(answers.readline())["distdbg"] == "debugger"
                sock.sendall(b'{"id": 7, "eval": "x"}\n')
                assert protocol.decode(answers.readline())["id"] == 7
        finally:
            server.end(desk, "it is over")
            server.settle(desk, 5.0)
        until = time.monotonic() + 5
        while server._thread is not None:
            assert time.monotonic() < until, "its thread does not end"
            time.sleep(0.001)  # it announces nothing


def _say(sock: socket.socket, chance: random.Random) -> None:
    with suppress(ConnectionError, TimeoutError):
        for _ in range(chance.randint(1, 6)):
            line = json.dumps(harness.mutate(chance.choice(LINES), chance)).encode()
            if chance.random() < 0.1:
                line = harness.spoil(line, chance)
            sock.sendall(line + b"\n")
        if chance.random() < 0.5:
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(5.0)
            while data := sock.recv(1 << 16):
                _check(data)


def _check(data: bytes) -> None:
    for line in data.splitlines()[:-1]:
        with suppress(protocol.MalformedLine):  # the rest of one that came in two parts
            protocol.decode(line)


if __name__ == "__main__":
    harness.main(one, "fuzz_debugger", __doc__)
