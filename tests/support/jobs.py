"""One `distdbg run` for a test: in a temporary folder of its own, ended whatever happens, and searched for.

with running(["--nproc-per-node=2", "train.py"], folder) as job:
    job.send(signal.SIGINT)
    ended = job.wait()
assert job.leftovers() == []
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import distdbg
from distdbg.diagnose.headline import HEADLINES
from distdbg.record.ends import RankEnd, read_ends
from distdbg.record.folders import attempt_folder, user_folder
from tests.support.leftovers import Traces, find_leftovers, find_marked, new_mark, take_traces

_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a launcher said and how it ended."""

    code: int
    """As `subprocess` says it: negative for a signal."""
    out: str
    err: str
    seconds: float

    @property
    def report(self) -> list[str]:
        """The launcher's last words: from the line on that begins with what kind of failure it is."""
        lines = self.err.splitlines()
        starts = [n for n, line in enumerate(lines) if line.partition(": ")[0] in HEADLINES]
        return lines[starts[-1] :] if starts else []


class RunningJob:
    """A launcher that was started, and all that comes of it."""

    def __init__(self, process: subprocess.Popen[bytes], before: Traces, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self._before = before
        self._began = time.monotonic()

    @property
    def run_folder(self) -> Path:
        """Where the run has its records."""
        return (user_folder(str(self.folder)) / "latest").resolve()

    def ends(self, attempt: int = 0) -> list[RankEnd]:
        """How its ranks ended, by rank."""
        return sorted(read_ends(attempt_folder(self.run_folder, attempt)), key=lambda e: e.rank)

    def processes(self) -> dict[int, str]:
        """Those alive, with their command lines."""
        return find_marked(self._before.mark)

    def send(self, signum: int) -> None:
        """Send the launcher, and nobody else, a signal."""
        os.kill(self.process.pid, signum)

    def until(self, is_so: Callable[[], object], what: str, timeout_s: float = _PATIENCE_S) -> None:
        """Wait for something that the job does; its end, or a lack of patience, is an error."""
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if self.process.poll() is not None and not is_so():
                raise AssertionError(f"the job ended before {what}: {self.wait()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout_s:.0f} s: {what}; {self.processes()}")
            time.sleep(0.01)  # nothing announces what another process does

    def wait(self, timeout_s: float = _PATIENCE_S) -> Done:
        """Wait for the launcher's end."""
        out, err = self.process.communicate(timeout=timeout_s)
        return Done(
            code=self.process.returncode,
            out=(out or b"").decode(errors="replace"),
            err=(err or b"").decode(errors="replace"),
            seconds=time.monotonic() - self._began,
        )

    def leftovers(self, patience_s: float = 30.0) -> list[str]:
        """What is there of the job outside the folders of runs, once it has had `patience_s`."""
        deadline = time.monotonic() + patience_s
        while True:
            found = [line for line in find_leftovers(self._before, 0.0) if self._is_ours(line)]
            if not found or time.monotonic() >= deadline:
                return found
            time.sleep(0.02)  # nothing announces the end of processes that are not ours

    def _is_ours(self, line: str) -> bool:
        kind, _, name = line.partition(": ")
        if kind != "file":
            # Other jobs of this host have sockets as well; those without our folder in the name
            # are held by processes, which are known by their mark.
            return kind != "socket" or str(self.folder) in name
        user = user_folder(str(self.folder))
        path = Path(name)
        if path in (user, user / "latest", user / ".agents"):
            return False
        return not path.is_relative_to(user) or path.is_relative_to(user / ".agents")


@contextmanager
def running(
    argv: Sequence[str],
    folder: Path,
    environ: Mapping[str, str] | None = None,
    *,
    program: Sequence[str] = ("-m", "distdbg", "run"),
    has_agent: bool = False,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    before_exec: Callable[[], None] | None = None,
    cwd: Path | None = None,
) -> Iterator[RunningJob]:
    """Start a launcher with its temporary files in `folder`, which is best a short path.

    `cwd`: sources below it alone are shown in reports.
    """
    before = take_traces(new_mark(), [folder])
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DISTDBG_", "PET_", "TORCHELASTIC_", "OMP_", "RANK", "WORLD_"))
    }
    inherited |= {
        **before.mark.environment,
        "PYTHONPATH": str(Path(distdbg.__file__).parents[1]),
        "TMPDIR": str(folder),
        "DISTDBG_AGENT": "1" if has_agent else "0",
    }
    process = subprocess.Popen(
        [sys.executable, *program, *argv],
        env=inherited | dict(environ or {}),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        start_new_session=True,
        preexec_fn=before_exec,
    )
    job = RunningJob(process, before, folder)
    try:
        yield job
    finally:
        if process.poll() is None:
            process.kill()
            _await_warden(job)  # it clears up; what it does not, is cleared up below
        for pid in job.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _await_warden(job: RunningJob) -> None:
    # Not for files: there may be those of other jobs in the same folder, which nobody removes now.
    deadline = time.monotonic() + _PATIENCE_S
    while any("distdbg-warden" in command for command in job.processes().values()):
        if time.monotonic() >= deadline:
            return
        time.sleep(0.02)  # nothing announces the end of processes that are not ours
