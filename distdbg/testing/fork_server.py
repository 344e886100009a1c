"""Fresh processes in milliseconds: a server that has imported the library forks them.

An interpreter that imports NumPy and this library takes a quarter of a second of a core, its fork a few
milliseconds. What a fork has and a fresh interpreter would not: the modules are loaded, and the hash seed is
that of the other ranks. The wire between both processes is described in `fork_server_main`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distdbg.testing.fork_server_main as server_main

#: Imported by ranks as well, where whoever runs them has them loaded.
_COMMON = ("numpy", "pytest")
#: Forks, kills and the start of the server itself; not the work of a rank.
_ANSWER_S = 60.0
#: For a server that has lost its client, until it is killed.
_END_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedRank:
    """One process to be forked."""

    env: Mapping[str, str]
    """All of its environment."""
    output: Path
    """Where its stdout and stderr go."""
    arguments: Sequence[str]
    """What a forked rank has to call; see fork_server_main.py."""


class ForkServer:
    """The client's side of one server process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, os.fspath(Path(server_main.__file__)), str(theirs.fileno())]
            self._process = subprocess.Popen(
                [*command, *(name for name in _COMMON if name in sys.modules)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the client, which ends the ranks
            )
        self._socket = ours
        self._received = b""

    def start(self, ranks: Sequence[ForkedRank]) -> list[int]:
        """Fork a batch and return the PIDs; `end` has to follow."""
        rank_orders = [
            {"env": dict(r.env), "output": str(r.output), "arguments": list(r.arguments)}
            for r in ranks
        ]
        self._send({"cwd": os.getcwd(), "ranks": rank_orders})
        pids: list[int] = self._receive()["pids"]
        return pids

    def wait_for_one(self, timeout_s: float) -> tuple[int, int] | None:
        """The index and exit code of a rank that has ended; None when none did in time."""
        if b"\n" not in self._received and not select.select([self._socket], [], [], timeout_s)[0]:
            return None
        index, exit_code = self._receive()["ended"]
        return index, exit_code

    def end(self) -> list[int]:
        """Kill what is left of the batch, and return all exit codes, negative for a signal."""
        self._send("end")
        while "exit_codes" not in (answer := self._receive()):
            pass  # a rank that ended just now
        exit_codes: list[int] = answer["exit_codes"]
        return exit_codes

    def close(self) -> None:
        """End the server, which first kills the sessions of all ranks that it has."""
        self._socket.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, order: object) -> None:
        self._socket.sendall(json.dumps(order).encode() + b"\n")

    def _receive(self) -> Any:
        self._socket.settimeout(_ANSWER_S)
        while b"\n" not in self._received:
            try:
                chunk = self._socket.recv(1 << 16)
            except TimeoutError:
                pid = self._process.pid
                raise TimeoutError(
                    f"the fork server {pid} gave no answer in {_ANSWER_S:g} s"
                ) from None
            if not chunk:
                raise RuntimeError(f"the fork server ended with {self._process.wait()}")
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)


class ForkServers:
    """Servers that were started; each serves one batch at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects _idle
        self._idle: list[ForkServer] = []

    @contextmanager
    def take(self) -> Iterator[ForkServer]:
        """A server for one batch, an idle one if there is any."""
        with self._lock:
            server = self._idle.pop() if self._idle else None
        server = server or ForkServer()
        try:
            yield server
        except BaseException:
            server.close()  # it may be amid a batch
            raise
        with self._lock:
            self._idle.append(server)

    def warm_up(self) -> None:
        """Have one server, before anybody waits for it or counts the children of this process."""
        with self.take():
            pass

    def close(self) -> None:
        """End those that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for server in idle:
            server.close()


def python_path(environ: Mapping[str, str]) -> str:
    """PYTHONPATH with the folder that this package is in, and so the tests and benchmarks of a checkout."""
    package_parent = os.fspath(Path(server_main.__file__).resolve().parents[2])
    paths = [package_parent, *environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.pathsep.join(path for path in paths if path)


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": python_path(os.environ),
        # A thread of BLAS would not survive the fork.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


#: The server of this process, ended with it.
fork_servers = ForkServers()
atexit.register(fork_servers.close)
