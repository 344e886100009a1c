"""Runs scripts as `subprocess` does, in processes that have torch imported already.

`warm_zygote.py` forks them. A process that another one starts by itself, such as a launcher's rank,
is a fresh interpreter all the same.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

ZYGOTE = Path(__file__).with_name("warm_zygote.py")
START_S = 120.0


class WarmProcess:
    """What is needed of `subprocess.Popen`, of a process that is no child of this one."""

    def __init__(self, argv: Sequence[str], streams: list[IO[bytes] | None], answer: int) -> None:
        self.argv = list(argv)
        self.stdin, self.stdout, self.stderr = streams
        self.returncode: int | None = None
        self._answer = answer
        self.pid = self._read_number(START_S)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; subprocess.TimeoutExpired when the process does not end."""
        if self.returncode is None:
            self.returncode = self._read_number(timeout)
            os.close(self._answer)
        return self.returncode

    def kill(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        """All of stdout and stderr, once nobody holds them any more and the process has ended."""
        deadline = time.monotonic() + timeout
        texts = {stream: b"" for stream in (self.stdout, self.stderr) if stream is not None}
        with selectors.DefaultSelector() as selector:
            for stream in texts:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(self.argv, timeout, *texts.values())
                for key, _ in ready:
                    piece = os.read(key.fd, 1 << 16)
                    texts[key.fileobj] += piece  # type: ignore[index]
                    if not piece:
                        selector.unregister(key.fileobj)
        self.wait(max(0.0, deadline - time.monotonic()))
        return texts.get(self.stdout, b""), texts.get(self.stderr, b"")  # type: ignore[arg-type]

    def close(self) -> None:
        """End the process if it has not ended, and let go of its pipes."""
        self.kill()
        self.wait(START_S)
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):  # what was left to flush has no reader
                    stream.close()

    def _read_number(self, timeout: float | None) -> int:
        with selectors.DefaultSelector() as selector:
            selector.register(self._answer, selectors.EVENT_READ)
            if not selector.select(timeout):
                raise subprocess.TimeoutExpired(self.argv, timeout or 0.0)
        line = b""
        while not line.endswith(b"\n"):
            piece = os.read(self._answer, 1)
            if not piece:
                raise RuntimeError(f"{ZYGOTE.name} ended before {self.argv} did")
            line += piece
        return int(line)


class WarmPython:
    """The interpreter; `close` ends it and all that it runs."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(entry for entry in [os.getcwd(), *sys.path] if entry)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, os.fspath(ZYGOTE), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            )
        # Until it has its own name it would be taken for something that a test left behind.
        self._orders.recv(len(b"here"))

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
        own_session: bool = False,
        ends_itself: bool = False,
    ) -> WarmProcess:
        """Start `[FILE, ...]`, `["-c", TEXT, ...]` or `["-m", NAME, ...]`.

        Streams are as in `subprocess`. `ends_itself`: the interpreter takes torch apart at its end,
        which costs a fifth of a second.
        """
        order = {
            "argv": list(argv),
            "env": dict(os.environ if env is None else env),
            "cwd": os.fspath(cwd or os.getcwd()),
            "own_session": own_session,
            "ends_itself": ends_itself,
        }
        streams: list[IO[bytes] | None] = []
        theirs: list[int] = []
        passed: list[int] = []
        answer, their_answer = os.pipe()
        for number, wanted in enumerate((stdin, stdout, stderr)):
            stream = None
            if wanted == subprocess.PIPE:
                read, write = os.pipe()
                kept, given = (write, read) if number == 0 else (read, write)
                stream = open(kept, "wb" if number == 0 else "rb", buffering=0)  # noqa: SIM115
                theirs.append(given)
            elif wanted == subprocess.DEVNULL:
                theirs.append(given := os.open(os.devnull, os.O_RDWR))
            elif wanted == subprocess.STDOUT:
                given = passed[1]
            else:
                given = wanted if isinstance(wanted, int) else wanted.fileno()
            streams.append(stream)
            passed.append(given)
        socket.send_fds(self._orders, [json.dumps(order).encode()], [*passed, their_answer])
        for descriptor in (*theirs, their_answer):
            os.close(descriptor)
        return WarmProcess(argv, streams, answer)

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float = 240.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end, and to the end of its stdout and stderr."""
        process = self.start(argv, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout)
        finally:
            process.close()
        assert process.returncode is not None
        return subprocess.CompletedProcess(
            process.argv, process.returncode, out.decode(), err.decode()
        )

    def close(self) -> None:
        self._orders.close()
        self._process.wait()
