"""The ranks of one MPI library, as a Pool: mpiexec starts them, and each connects to a socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from differential.pool import Pool
from tests.mpi.launchers import command_of, environment_of

WORKER = Path(__file__).with_name("mpi_worker.py")
START_S = 100.0


class MpiRank:
    """What a Pool needs of a process: one that mpiexec has started."""

    def __init__(self, connection: socket.socket, launcher: subprocess.Popen[bytes]) -> None:
        self._launcher = launcher
        self.stdin = _Writer(connection)
        self.stdout: IO[bytes] = connection.makefile("rb", buffering=0)

    def wait(self, timeout: float | None = None) -> int:
        return self._launcher.wait(timeout)

    def kill(self) -> None:
        if self._launcher.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._launcher.pid, signal.SIGKILL)


class _Writer:
    """The end of it is told to the other side, as by a pipe."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def write(self, text: bytes) -> None:
        self._connection.sendall(text)

    def flush(self) -> None:
        """All is sent."""

    def close(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        self._connection.close()


class MpiPool(Pool):
    """The subject is the name of a library."""

    def _start(self) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _kill
        with tempfile.TemporaryDirectory() as folder:
            address = os.path.join(folder, "socket")
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(address)
                listener.listen(self.world_size)
                words = [sys.executable, str(WORKER), address]
                env = environment_of(self.subject)
                env["PYTHONPATH"] = os.pathsep.join([str(WORKER.parent.parent), env["PYTHONPATH"]])
                launcher = subprocess.Popen(
                    [*command_of(self.subject, self.world_size), *words],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._output,
                    start_new_session=True,
                )
                ranks = self._accept(listener, launcher)
        self._ranks = [ranks[rank] for rank in range(self.world_size)]  # type: ignore[misc]

    def _accept(
        self, listener: socket.socket, launcher: subprocess.Popen[bytes]
    ) -> dict[int, MpiRank]:
        """A rank connects when it has made its groups, and says who it is."""
        ranks: dict[int, MpiRank] = {}
        deadline = time.monotonic() + START_S
        listener.settimeout(0.2)
        while len(ranks) < self.world_size:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                if launcher.poll() is not None or time.monotonic() > deadline:
                    os.killpg(launcher.pid, signal.SIGKILL)
                    self._fail(f"only ranks {sorted(ranks)} came")
                continue
            connection.settimeout(None)
            ranks[connection.recv(1)[0]] = MpiRank(connection, launcher)
        return ranks
