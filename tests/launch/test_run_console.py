"""The launcher's terminal, lent to the debugger of a rank: over a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.hosts import Hosts

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0

#: A client for the tests of the terminal alone: says where it is, and does as it is told.
CLIENT = """
import os, signal, sys, termios, time
while os.tcgetpgrp(0) != os.getpgrp():
    time.sleep(0.01)  # it is about to be given
signal.signal(signal.SIGINT, lambda *_: print("client was interrupted", flush=True))
print("client", sys.argv[1], os.tcgetpgrp(0) == os.getpgrp(), flush=True)
attributes = termios.tcgetattr(0)
attributes[3] &= ~termios.ECHO
termios.tcsetattr(0, termios.TCSANOW, attributes)
while input() != "end":
    pass
"""

#: A launcher's loop around the console; what holds the clock is in a file.
LOOP = """
import os, sys, time
from pathlib import Path
from distdbg.launch.console import LauncherTerminal
from distdbg.launch.stopped_ranks import StoppedRank

def find_stops():
    words = Path(sys.argv[1]).read_text().split()
    return [StoppedRank(*map(int, one.split(":"))) for one in words]

console = LauncherTerminal.here()
assert console is not None
console._command = lambda rank, run: (sys.executable, sys.argv[2], str(rank))
print("begun", os.getpid(), flush=True)
try:
    while True:
        console.look("r", find_stops)
        if not Path(sys.argv[1]).read_text().strip() == "over":
            time.sleep(0.02)
            continue
except (KeyboardInterrupt, ValueError):
    console.close()
    print("over", os.tcgetpgrp(0) == os.getpgrp(), flush=True)
"""


class Terminal:
    """A program on a pseudo-terminal, as a shell would start it."""

    def __init__(self, argv: list[str], environ: dict[str, str]) -> None:
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(argv[0], argv, environ)

    def expect(self, pattern: str, timeout_s: float = PATIENCE_S) -> re.Match[str]:
        """Read until it is there; what came before is given up."""
        deadline = time.monotonic() + timeout_s
        while (found := re.search(pattern, self.text)) is None:
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select([self.fd], [], [], max(left_s, 0.0))
            assert ready, f"{pattern!r} did not come: {self.text}"
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:
                data = b""
            assert data, f"it ended before {pattern!r} came: {self.text}"
            self.text += data.decode(errors="replace")
        self.text = self.text[found.end() :]
        return found

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit code, as a shell says it."""
        deadline = time.monotonic() + timeout_s
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            with suppress(OSError):  # nobody has the other end any more
                while select.select([self.fd], [], [], 0)[0]:
                    self.text += os.read(self.fd, 1 << 16).decode(errors="replace")
            if pid:
                self.pid = 0
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            assert time.monotonic() < deadline, f"it has not ended: {self.text}"
            time.sleep(0.01)  # for the end of a child

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    terminals: list[Terminal] = []

    def begin(*argv: str, **variables: str) -> Terminal:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "DISTDBG_"))}
        environ |= {
            "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1",
            "TERM": "dumb", "DISTDBG_TOKEN": "a secret of this test", **variables,
        }  # fmt: skip
        terminals.append(Terminal([sys.executable, *argv], environ))
        return terminals[-1]

    yield begin
    for terminal in terminals:
        terminal.close()


@pytest.fixture
def console(tmp_path: Path, start: Start) -> Iterator[tuple[Terminal, Callable[[str], None], int]]:
    """The loop of a launcher, and who holds the clock: 'rank:since ...'."""
    holds, client, loop = (tmp_path / name for name in ("holds", "client.py", "loop.py"))

    def hold(words: str) -> None:
        (tmp_path / "draft").write_text(words)
        (tmp_path / "draft").replace(holds)

    hold("")
    client.write_text(CLIENT)
    loop.write_text(LOOP)
    terminal = start(str(loop), str(holds), str(client))
    pid = int(terminal.expect(r"begun (\d+)")[1])
    yield terminal, hold, pid
    hold("over")
    terminal.expect("over True")
    assert terminal.wait() == 0


Lent = tuple[Terminal, Callable[[str], None], int]


def echoes(terminal: Terminal) -> bool:
    return bool(termios.tcgetattr(terminal.fd)[3] & termios.ECHO)


def test_a_rank_that_stops_gets_the_terminal_and_the_launcher_gets_it_back(console: Lent) -> None:
    terminal, hold, _ = console
    hold("3:7")
    terminal.expect("this terminal now shows the debugger of rank 3\r\n")
    terminal.expect("client 3 True")
    hold("")
    terminal.type("end\n")
    hold("3:8")  # the next stop of the same rank
    terminal.expect("client 3 True")
    terminal.type("end\n")
    terminal.expect("rank 3 is still stopped; distdbg attach --rank 3 r returns there")
    assert echoes(terminal)


@pytest.mark.slow
def test_several_ranks_that_stop_get_it_one_after_the_other(console: Lent) -> None:
    terminal, hold, _ = console
    hold("0:1 2:2 3:3")
    terminal.expect("the debugger of rank 0; then ranks 2-3, stopped too")
    terminal.expect("client 0 True")
    terminal.type("end\n")
    hold("2:2 3:3")
    terminal.expect("the debugger of rank 2; then rank 3, stopped too")
    terminal.expect("client 2 True")
    hold("3:3")
    terminal.type("end\n")
    terminal.expect("client 3 True")
    terminal.type("end\n")
    hold("")


def test_ctrl_c_is_the_clients(console: Lent) -> None:
    terminal, hold, _ = console
    hold("0:1")
    terminal.expect("client 0 True")
    terminal.type("\x03")
    # Python looks for signals before it reads and when a read is interrupted; one in between waits for more.
    terminal.type("\n")
    terminal.expect("client was interrupted")
    terminal.type("end\n")
    hold("")


def test_a_client_that_is_killed_leaves_the_terminal_as_it_was(console: Lent) -> None:
    terminal, hold, _ = console
    assert echoes(terminal)
    hold("0:1")
    terminal.expect("client 0 True")
    deadline = time.monotonic() + PATIENCE_S
    while echoes(terminal):
        assert time.monotonic() < deadline
        time.sleep(0.01)  # the client says so before it does
    os.kill(os.tcgetpgrp(terminal.fd), signal.SIGKILL)
    terminal.expect("the debugger's client was killed by SIGKILL")
    terminal.expect("still stopped")
    assert echoes(terminal)


@pytest.mark.slow
def test_a_client_that_stops_itself_goes_on_where_nobody_waits_for_that(console: Lent) -> None:
    terminal, hold, _ = console
    hold("0:1")
    terminal.expect("client 0 True")
    terminal.type("\x1a")  # Ctrl-Z: there is no shell here
    terminal.type("end\n")
    terminal.expect("still stopped")


def test_the_launchers_end_ends_the_client(console: Lent) -> None:
    terminal, hold, pid = console
    hold("0:1")
    terminal.expect("client 0 True")
    os.kill(pid, signal.SIGINT)
    hold("")


PROGRAM = """
import os, sys
import numpy as np
import distdbg as dist
dist.init_process_group()
rank = dist.get_rank()
x = np.full(2, 1.0 + rank)
dist.breakpoint(rank=[0, 1] if "both" in sys.argv else 1)
dist.all_reduce(x)
os.write(1, f"rank {rank} has {x[0]}\\n".encode())
dist.destroy_process_group()
"""


@pytest.fixture
def job(tmp_path: Path, start: Start) -> Callable[..., Terminal]:
    script = tmp_path / "job.py"
    script.write_text(PROGRAM)

    def begin(*flags: str, arguments: tuple[str, ...] = ()) -> Terminal:
        words = ["-m", "distdbg", "run", "--nproc-per-node", "2", *flags, str(script), *arguments]
        return start(*words)

    return begin


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--debuggable",), ("--no-agent",), ("--tee", "3")])
def test_a_breakpoint_under_the_launcher_feels_like_one_in_a_script(
    job: Callable[..., Terminal], flags: tuple[str, ...]
) -> None:
    terminal = job(*flags)
    terminal.expect(r"this terminal now shows the debugger of rank 1")
    terminal.expect(r"\(Pdb\) ")
    terminal.type("p x[0]\n")
    terminal.expect("2.0")
    terminal.expect(r"\(Pdb\) ")
    terminal.type("x[0] = 40\n")
    terminal.expect(r"\(Pdb\) ")
    terminal.type("c\n")
    assert terminal.wait() == 0
    assert sorted(re.findall(r"rank (\d) has 41.0", terminal.text)) == ["0", "1"]


@pytest.mark.slow
def test_two_ranks_at_a_breakpoint_are_debugged_one_after_the_other(
    job: Callable[..., Terminal],
) -> None:
    terminal = job(arguments=("both",))
    for _ in range(2):
        terminal.expect(r"this terminal now shows the debugger of rank \d")
        terminal.expect(r"\(Pdb\) ")
        terminal.type("c\n")
    assert terminal.wait() == 0


@pytest.mark.slow
def test_a_job_that_is_ended_at_a_breakpoint_gives_the_terminal_back(
    job: Callable[..., Terminal],
) -> None:
    terminal = job()
    terminal.expect(r"\(Pdb\) ")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait() == 128 + signal.SIGTERM
    assert echoes(terminal)


@pytest.mark.slow
def test_a_rank_of_another_host_gets_the_terminal_of_the_first_launcher(
    tmp_path: Path, start: Start
) -> None:
    with Hosts(tmp_path) as hosts:
        script = hosts.script(PROGRAM)
        terminal = start("-m", "distdbg", "run", *hosts.static(2, 0), script, **hosts.environ)
        other = hosts.launch(1, *hosts.static(2, 1), script)
        terminal.expect(r"this terminal now shows the debugger of rank 1")
        terminal.expect(r"\(Pdb\) ")
        terminal.type("x[0] = 40\n")
        terminal.expect(r"\(Pdb\) ")
        terminal.type("c\n")
        terminal.expect(r"rank 0 has 41.0")
        assert terminal.wait() == 0
        assert other.wait() == 0
