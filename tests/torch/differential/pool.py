"""The ranks of one library, kept alive over many programs; started anew after one that failed.

A rank that uses torch is forked with torch imported, the others are fresh interpreters. Everything
that waits here has a time limit, and a pool that is closed, or whose program did not end, has
killed all its processes.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from tests.support.ports import free_port

if TYPE_CHECKING:
    from warm_python import WarmProcess, WarmPython

WORKER = Path(__file__).with_name("worker.py")
USING_TORCH = ("gloo", "gloo that lies", "distdbg on tensors")
START_S = 60.0
PROGRAM_S = 10.0
GRACE_S = 1.0
#: A rank that leaves ends an interpreter with torch in it.
LEAVE_S = 60.0
"""How long the other ranks get when one has reported an error."""


class PoolError(RuntimeError):
    """A rank died, or a program did not end; the text has what the ranks printed."""


class Pool:
    """`run` gives a program to all ranks and returns the results of each."""

    def __init__(self, subject: str, world_size: int, warm_python: WarmPython) -> None:
        self.subject = subject
        self.world_size = world_size
        self._warm_python = warm_python
        self._ranks: list[subprocess.Popen[bytes] | WarmProcess] = []
        self._output: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and not self.subject.startswith("gloo"):
            self._end()
        self._kill()

    def _end(self) -> None:
        """Let the ranks destroy their groups and leave, which is a test as well."""
        for rank in self._ranks:  # the end of its input ends a rank
            assert rank.stdin is not None
            rank.stdin.close()
        deadline = time.monotonic() + LEAVE_S
        for number, rank in enumerate(self._ranks):
            try:
                if rank.wait(max(0.0, deadline - time.monotonic())) != 0:
                    self._fail(f"rank {number} ended with {rank.returncode}")
            except subprocess.TimeoutExpired:
                self._fail(f"rank {number} did not leave within {LEAVE_S:.0f} s")

    def run(self, program: dict[str, Any]) -> list[list[dict[str, Any] | None]]:
        """The results of all ranks; PoolError if they do not come."""
        if not self._ranks:
            self._start()
        line = (json.dumps(program) + "\n").encode()
        for rank in self._ranks:
            assert rank.stdin is not None
            try:
                rank.stdin.write(line)
                rank.stdin.flush()
            except BrokenPipeError:
                self._fail("a rank is gone before the program began")
        results = self._read_lines(PROGRAM_S)
        if any(entry and "error" in entry for steps in results if steps for entry in steps):
            self._kill()  # its ranks are at different steps now
        return results

    def _start(self) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _kill
        port = free_port()
        path = os.pathsep.join([str(WORKER.parent.parent), *filter(None, sys.path)])
        for rank in range(self.world_size):
            words = [str(WORKER), self.subject, str(rank), str(self.world_size), str(port)]
            env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
            self._ranks.append(self._start_rank(words, env, self._output))
        self._read_lines(START_S)

    def _start_rank(
        self, words: list[str], env: dict[str, str], output: IO[bytes]
    ) -> subprocess.Popen[bytes] | WarmProcess:
        pipe = subprocess.PIPE
        if self.subject in USING_TORCH:
            return self._warm_python.start(
                words, env=env, stdin=pipe, stdout=pipe, stderr=output, ends_itself=True
            )
        return subprocess.Popen(
            [sys.executable, *words], env=env, stdin=pipe, stdout=pipe, stderr=output
        )

    def _read_lines(self, limit_s: float) -> list[Any]:
        """One line of each rank; when one brings an error, the others get only GRACE_S more.

        A rank that then says nothing has None as its results.
        """
        texts = [b""] * self.world_size
        deadline = time.monotonic() + limit_s
        failed = False
        with selectors.DefaultSelector() as selector:
            for number, rank in enumerate(self._ranks):
                assert rank.stdout is not None
                selector.register(rank.stdout, selectors.EVENT_READ, number)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready and failed:
                    break
                if not ready:
                    silent = sorted(key.data for key in selector.get_map().values())
                    self._fail(f"ranks {silent} gave no result within {limit_s:g} s")
                for key, _ in ready:
                    piece = os.read(key.fd, 1 << 16)
                    texts[key.data] += piece
                    if not piece:
                        self._fail(f"rank {key.data} died")
                    if piece.endswith(b"\n"):
                        selector.unregister(key.fileobj)
                        if b'"error": ' in texts[key.data] and not failed:
                            failed = True
                            deadline = min(deadline, time.monotonic() + GRACE_S)
        return [json.loads(text) if text.endswith(b"\n") else None for text in texts]

    def _fail(self, what: str) -> None:
        assert self._output is not None
        self._output.seek(0)
        said = self._output.read().decode(errors="replace")[-3000:]
        self._kill()
        raise PoolError(f"{self.subject}: {what}; the ranks said:\n{said}")

    def _kill(self) -> None:
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.wait()
            for pipe in (rank.stdin, rank.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):  # what was left to flush has no reader
                        pipe.close()
        self._ranks = []
        if self._output is not None:
            self._output.close()
            self._output = None
