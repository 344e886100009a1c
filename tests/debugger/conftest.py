"""Ranks of a program that a test writes, without a launcher, and clients at a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import distdbg
from distdbg.control.sockets import debugger_socket
from tests.support.terminals import ShownProgram, on_terminal

_PATIENCE_S = 120.0


def poll_for(is_so: Callable[[], object], explain: Callable[[], str]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(explain())
        time.sleep(0.01)  # nothing announces what another process does


class Ranks:
    """The ranks of one program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        program: str,
        world_size: int = 1,
        *,
        stdin: int = subprocess.DEVNULL,
        preexec_fn: Callable[[], None] | None = None,
        **environ: str,
    ) -> None:
        """Start them; their records are in `run`."""
        self.run.mkdir(exist_ok=True)
        path = self.folder / "program.py"
        path.write_text(textwrap.dedent(program))
        for rank in range(world_size):
            with open(self.folder / f"out{rank}", "wb") as out:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, path],
                        stdin=stdin,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        env=self.environ(rank, world_size) | environ,
                        cwd=self.folder,
                        start_new_session=True,
                        preexec_fn=preexec_fn,
                    )
                )

    def environ(self, rank: int = 0, world_size: int = 1) -> dict[str, str]:
        package = str(Path(distdbg.__file__).parents[1])
        return os.environ | {
            "PYTHONPATH": f"{package}{os.pathsep}{self.folder}",
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "DISTDBG_STORE": f"file://{self.folder}/store",
            "DISTDBG_RUN_DIR": str(self.run),
            "DISTDBG_TOKEN": "a token of a test",
        }

    def out(self, rank: int = 0) -> str:
        """What a rank has printed."""
        return (self.folder / f"out{rank}").read_text()

    def socket(self, rank: int = 0) -> Path:
        return self.run / debugger_socket(rank)

    def until_printed(self, text: str, rank: int = 0) -> None:
        poll_for(lambda: text in self.out(rank), lambda: f"{text!r} not in {self.out(rank)}")

    def until_stopped(self, rank: int = 0) -> None:
        self.until_printed("attach: distdbg attach", rank)

    def attach(self, rank: int = 0) -> AbstractContextManager[ShownProgram]:
        """A client at a terminal."""
        return on_terminal(
            ["-m", "distdbg", "attach", "--rank", str(rank), str(self.run)], self.environ()
        )

    @contextmanager
    def at_prompt(self, rank: int = 0) -> Iterator[ShownProgram]:
        """A client at a terminal, which shows the prompt."""
        with self.attach(rank) as client:
            client.expect(r"\(Pdb\) ")
            yield client

    def start_and_stop(self, program: str, world_size: int = 1, **environ: str) -> None:
        """Start them, until the first one has stopped."""
        self.start(program, world_size, **environ)
        self.until_stopped()

    def call(self, *argv: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        """`distdbg` with these arguments, over pipes."""
        return subprocess.run(
            [sys.executable, "-m", "distdbg", *argv],
            input=typed,
            capture_output=True,
            text=True,
            env=self.environ(),
            timeout=_PATIENCE_S,
            check=False,
        )

    def wait(self) -> list[int]:
        """The exit codes."""
        return [process.wait(_PATIENCE_S) for process in self.processes]

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def ranks_of(tmp_path: Path) -> Iterator[Ranks]:
    """Ranks that a test starts; ended with it."""
    ranks = Ranks(tmp_path)
    try:
        yield ranks
    finally:
        ranks.end()
