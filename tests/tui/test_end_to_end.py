"""A whole story in a real terminal: a job is watched, hangs, is looked into, mended and ends well."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.leftovers import find_marked, new_mark

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0
#: Without these a screen stays empty, and nothing would say why.
_MUST_WORK = ("new-session", "new-window", "capture-pane")

PROGRAM = """\
import os
import time

import numpy as np

import distdbg as dist

dist.init_process_group()
rank = dist.get_rank()
is_stuck = False
is_enough = np.zeros(1)
dist.all_reduce(is_enough)
if rank == 0:
    print("begun", flush=True)
while not is_enough[0]:
    is_stuck = rank == 2 and os.path.exists("plant")
    while is_stuck:
        time.sleep(0.02)
    is_enough[0] = os.path.exists("enough")
    dist.all_reduce(is_enough)
    time.sleep(0.02)
"""


class Terminal:
    """tmux, with a server of its own."""

    def __init__(self, program: str, folder: Path, environ: dict[str, str]) -> None:
        self._tmux = [program, "-S", str(folder / "tmux.sock"), "-f", "/dev/null"]
        self._folder = folder
        self._environ = environ
        self._count = 0

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words],
            env=self._environ,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert words[0] not in _MUST_WORK or done.returncode == 0, done.stderr
        return done.stdout

    def open(self, command: str) -> int:
        """A window for a command; it stays after its end and says how that was."""
        line = f"{command}; echo it ended with $?; exec sleep {2 * LIMIT_S:.0f}"
        if self._count == 0:
            self.tmux("new-session", "-d", "-x", "120", "-y", "30", "-s", "t", line)
        else:
            self.tmux("new-window", "-d", "-t", "t", line)
        self._count += 1
        return self._count - 1

    def screen(self, window: int) -> str:
        return self.tmux("capture-pane", "-p", "-t", f"t:{window}")

    def see(self, window: int, *words: str) -> str:
        """Wait until all of it is on the screen."""
        end = time.monotonic() + LIMIT_S
        while True:
            screen = self.screen(window)
            missing = [word for word in words if word not in screen]
            if not missing:
                return screen
            assert time.monotonic() < end, f"{missing} is not on\n{screen}"
            time.sleep(0.1)  # a screen has no event for us

    def type(self, window: int, *keys: str) -> None:
        self.tmux("send-keys", "-t", f"t:{window}", *keys)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    program = shutil.which("tmux")
    if program is None:
        pytest.skip("tmux is not installed")
    mark = new_mark()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DISTDBG_")}
    environ |= {
        **mark.environment,
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }
    environ.pop("TMUX", None)
    terminal = Terminal(program, tmp_path, environ)
    try:
        yield terminal
    finally:
        terminal.tmux("kill-server")
        end = time.monotonic() + 30
        while (pids := find_marked(mark)) and time.monotonic() < end:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)  # the kernel has no event for us


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.tmux
@pytest.mark.tui
@pytest.mark.timeout(240)
def test_a_job_that_hangs_is_seen_mended_and_ends_well(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    distdbg = f"{shlex.quote(sys.executable)} -m distdbg"
    job = terminal.open(f"{distdbg} run --nproc-per-node 3 --debuggable job.py")
    terminal.see(job, "begun")
    top = terminal.open(f"{distdbg} top")
    try:
        terminal.see(top, "3 ranks", "3 running")

        (tmp_path / "plant").touch()
        terminal.see(top, "2 waiting", "rank 2 is asleep at job.py:")

        (tmp_path / "plant").unlink()
        terminal.type(top, "Home", "a")
        terminal.see(top, "rank 2 stopped at job.py:", "(Pdb)")
        terminal.type(top, "p rank, is_stuck", "Enter")
        terminal.see(top, "(2, True)")
        terminal.type(top, "is_stuck = False", "Enter")
        terminal.type(top, "c", "Enter")
        terminal.see(top, "rank 2 goes on")

        (tmp_path / "enough").touch()
        terminal.see(job, "it ended with 0")
        terminal.see(top, "over: ", "3 ended")
        terminal.type(top, "q")
        terminal.see(top, "it ended with 0")
    except BaseException:
        print(terminal.screen(job))
        raise


@pytest.mark.ranks
@pytest.mark.tmux
@pytest.mark.tui
@pytest.mark.timeout(240)
def test_a_dashboard_that_is_told_to_leave_leaves_the_terminal_as_it_was(
    terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    distdbg = f"{shlex.quote(sys.executable)} -m distdbg"
    job = terminal.open(f"{distdbg} run --nproc-per-node 1 job.py")
    terminal.see(job, "begun")
    for number in (signal.SIGTERM, signal.SIGHUP):
        top = terminal.open(f"sh -c 'echo $$ > pid; exec {distdbg} top'")
        terminal.see(top, "1 rank", "1 running")
        os.kill(int((tmp_path / "pid").read_text()), number)
        terminal.see(top, f"it ended with {128 + number}")
        modes = "#{alternate_on} #{mouse_any_flag} #{cursor_flag}"
        assert terminal.tmux("display-message", "-p", "-t", f"t:{top}", modes).split() == [*"001"]
    (tmp_path / "enough").touch()
    terminal.see(job, "it ended with 0")
