"""The ranks of one library with one environment: started once, asked many times, always ended."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any

from benchmarks.launch import CHECKOUT, free_port
from benchmarks.machine import die_with_parent

_LIMIT_S = 60.0


class RankProcessesError(RuntimeError):
    """A rank ended, or did not answer in time."""


class RankProcesses:
    """Ranks that wait for orders."""

    def __init__(self, library: str, env: Sequence[tuple[str, str]], world_size: int) -> None:
        self._place = f"{library} {dict(env)}, {world_size} ranks"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        words = [sys.executable, "-m", "benchmarks.overhead.rank", library]
        paths = filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")])
        around = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **dict(env)}
        port = free_port()
        self._ranks = [
            subprocess.Popen(
                [*words, *map(str, (rank, world_size, port))],
                env=around,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                preexec_fn=partial(die_with_parent, signal.SIGKILL),
            )
            for rank in range(world_size)
        ]

    def ask(self, order: dict[str, Any]) -> list[float]:
        """Give every rank the order; the times of the slowest rank, one entry per burst."""
        line = json.dumps(order).encode() + b"\n"
        try:
            for process in self._ranks:
                assert process.stdin is not None
                process.stdin.write(line)
                process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("a rank has ended") from None
        deadline = time.monotonic() + _LIMIT_S
        answers = [self._answer(process, deadline) for process in self._ranks]
        return [max(times) for times in zip(*answers, strict=True)]

    def _answer(self, process: subprocess.Popen[bytes], deadline: float) -> list[float]:
        assert process.stdout is not None
        # One line per order: nothing is left in the buffer that select cannot see.
        left_s = max(0.0, deadline - time.monotonic())
        if not select.select([process.stdout], [], [], left_s)[0]:
            raise self._failure(f"no answer in {_LIMIT_S:.0f} s")
        line = process.stdout.readline()
        if not line:
            raise self._failure("a rank has ended")
        times: list[float] = json.loads(line)
        return times

    def _failure(self, what: str) -> RankProcessesError:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return RankProcessesError(f"{self._place}: {what}: {lines[-1] if lines else 'no output'}")

    def __enter__(self) -> RankProcesses:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            for process in self._ranks:
                process.kill()
        for process in self._ranks:
            assert process.stdin is not None
            process.stdin.close()
        deadline = time.monotonic() + 10.0
        for process in self._ranks:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self._errors.close()
