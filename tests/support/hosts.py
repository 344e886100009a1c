"""Several hosts on one machine: each is a launcher with an address of its own, 127.0.0.2, 127.0.0.3 ...

    with Hosts(tmp_path) as hosts:
        script = hosts.script("say('hello')")
        both = [hosts.launch(n, *hosts.static(2, n), script) for n in range(2)]
        assert [launcher.wait() for launcher in both] == [0, 0]

At its end everything that was started is gone, or the block fails with what was left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import distdbg
from tests.support.leftovers import find_leftovers, find_marked, new_mark, take_traces
from tests.support.ports import free_port

PATIENCE_S = 120.0
_POLL_S = 0.02
_FIRST = 2  # 127.0.0.1 is what everything else on the machine uses
#: A dead launcher is noticed, and a round is complete, soon enough for a test; one that only has to wait
#: for a core is not taken for dead.
QUICK = (
    "last_call_timeout=0.5,keep_alive_interval=0.3,keep_alive_max_attempt=10,"
    "join_timeout=60,close_timeout=3"
)

_SAY = """
import os, sys
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""


class Launcher:
    """One `distdbg run`."""

    def __init__(
        self, host: str, folder: Path, command: list[str], environ: dict[str, str]
    ) -> None:
        self.host = host
        self._paths = (folder / "stdout", folder / "stderr")
        folder.mkdir()
        with self._paths[0].open("wb") as out, self._paths[1].open("wb") as err:
            self.process = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        """What it and its ranks have written by now."""
        return self._paths[0].read_text()

    @property
    def err(self) -> str:
        return self._paths[1].read_text()

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait until it has ended; its exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {timeout_s} s: {self}") from None

    def wait_for(self, text: str, count: int = 1, timeout_s: float = PATIENCE_S) -> None:
        """Wait until `text` was written so often."""
        deadline = time.monotonic() + timeout_s
        while (self.out + self.err).count(text) < count:
            is_over = self.process.poll() is not None
            if (self.out + self.err).count(text) >= count:
                return
            if is_over or time.monotonic() > deadline:
                raise AssertionError(f"{text!r} was not written {count} times: {self}")
            time.sleep(_POLL_S)

    def send(self, signum: int) -> None:
        """Signal the launcher alone."""
        os.kill(self.process.pid, signum)

    def lines(self, word: str) -> list[str]:
        """What follows `word` on the lines that begin with it, sorted."""
        found = [line for line in self.out.splitlines() if line.startswith(word + " ")]
        return sorted(line.removeprefix(word + " ") for line in found)

    def __str__(self) -> str:
        code = self.process.poll()
        return f"launcher on {self.host}, exit code {code}\n{self.out}\n{self.err}"


class Hosts:
    """The launchers of a test; a context manager.

    has_agent: whether they start agents, where those are what is looked at.
    """

    def __init__(self, folder: Path, *, has_agent: bool = True) -> None:
        self._folder = folder
        #: Where runs go: sockets have short paths only.
        self._temp = tempfile.TemporaryDirectory(prefix="hosts-")
        self._before = take_traces(new_mark())
        self._launchers: list[Launcher] = []
        self.port = free_port(self.address(0))
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PET_", "DISTDBG_"))},
            **self._before.mark.environment,
            "PYTHONPATH": str(Path(distdbg.__file__).parents[1]),
            "TMPDIR": self._temp.name,
            "OMP_NUM_THREADS": "1",
            "DISTDBG_TOKEN": "a secret of this test",
            "DISTDBG_AGENT": str(int(has_agent)),
        }

    @property
    def runs(self) -> Path:
        """The folder of all runs."""
        return Path(self._temp.name) / f"distdbg-{os.getuid()}"

    @property
    def run_folders(self) -> list[Path]:
        """One folder per run."""
        return sorted(p for p in self.runs.glob("[0-9]*") if p.is_dir())

    def address(self, number: int) -> str:
        """That of a host, from 0."""
        return f"127.0.0.{_FIRST + number}"

    def script(self, text: str, name: str = "script.py") -> str:
        """A script for the ranks; `say(...)` in it writes a line as a whole."""
        path = self._folder / name
        path.write_text(_SAY + text)
        return str(path)

    def static(self, nodes: int, number: int) -> list[str]:
        """The flags of a fixed set of hosts."""
        place = ["--nnodes", str(nodes), "--node-rank", str(number)]
        return [*place, "--master-addr", self.address(0), "--master-port", str(self.port)]

    def elastic(self, nodes: str, number: int, *, conf: str = QUICK, job: str = "x") -> list[str]:
        """The flags of hosts that come and go; host 0 serves, though the endpoint is on all."""
        conf += f",is_host={int(number == 0)}"
        where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{self.address(0)}:{self.port}"]
        return ["--nnodes", nodes, *where, "--rdzv-id", job, "--rdzv-conf", conf]

    def launch(self, number: int, *arguments: str, **environ: str) -> Launcher:
        """Start the launcher of a host."""
        host = self.address(number)
        command = [sys.executable, "-m", "distdbg", "run", "--local-addr", host, *arguments]
        folder = self._folder / f"launcher{len(self._launchers)}"
        launcher = Launcher(host, folder, command, {**self.environ, **environ})
        self._launchers.append(launcher)
        return launcher

    def find_processes(self) -> dict[int, str]:
        """Everything that the launchers have started and that lives."""
        return find_marked(self._before.mark)

    def leftovers(self) -> list[str]:
        """What is there though no launcher should be any more."""
        found = find_leftovers(self._before)
        return [line for line in found if line.startswith("process:") or self._temp.name in line]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        running = [one for one in self._launchers if one.process.poll() is None]
        left = self.leftovers() if error is None and not running else []
        for pid in self.find_processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for launcher in self._launchers:
            launcher.process.wait(PATIENCE_S)
        said = "\n".join(map(str, self._launchers))
        self._temp.cleanup()
        if error is not None:
            error.add_note(said)
        else:
            assert not running, f"still there:\n{said}"
            assert not left, f"left behind: {left}\n{said}"
