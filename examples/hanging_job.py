"""Starts examples/hang.py under `distdbg run`, and ends it again; for the demo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

HANG = Path(__file__).with_name("hang.py")
OPTIONS = ("--nproc-per-node", "4", "--on-deadlock", "report")
PATIENCE_S = 60.0
REST_S = 2.0


def environment() -> dict[str, str]:
    """An agent beside the ranks, which prints the report."""
    return {name: value for name, value in os.environ.items() if name != "DISTDBG_AGENT"}


def distdbg(*arguments: str, fails: bool = False) -> str:
    """What a command prints; `fails`: it is to exit with 1."""
    done = subprocess.run(
        [sys.executable, "-m", "distdbg", *arguments],
        env={**environment(), "COLUMNS": "78"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode != int(fails):
        raise RuntimeError(f"distdbg {' '.join(arguments)}: {done.returncode}\n{done.stderr}")
    return done.stdout


class HangingJob:
    """A job of four ranks that never ends by itself."""

    def __init__(self) -> None:
        self.command_line = " ".join(["distdbg", "run", *OPTIONS, f"examples/{HANG.name}"])
        self._lines: list[str] = []
        self._is_reported = threading.Event()
        self._is_whole = threading.Event()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "distdbg", "run", *OPTIONS, str(HANG)],
            env={"OMP_NUM_THREADS": "1", **environment()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the demo alone, which ends the job then.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def report(self) -> str:
        """What the launcher prints while the job hangs."""
        if not self._is_reported.wait(PATIENCE_S):
            raise RuntimeError("nothing was reported\n" + "".join(self._lines))
        self._is_whole.wait(REST_S)  # the hint stands last, where there is one
        return "".join(self._lines)

    @property
    def name(self) -> str:
        """The run, by which commands find it."""
        return self.folder.name

    @property
    def folder(self) -> Path:
        """Where its records are."""
        if not hasattr(self, "_folder"):
            self._folder = self._find_folder()
        return self._folder

    def stop(self) -> None:
        """End it, as Ctrl-C would."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(PATIENCE_S)

    def _find_folder(self) -> Path:
        from distdbg.client.live_runs import find_live_runs
        from distdbg.record.host import host_name

        agents = {live.run: live for live in find_live_runs(host_name()) if live.socket is not None}
        for live in agents.values():
            with live.connect() as client:
                about = client.ask("about")
            if about["launcher_pid"] == self._process.pid:
                assert live.folder is not None
                is_attempt = live.folder.name.startswith("attempt_")
                return live.folder.parent if is_attempt else live.folder
        raise RuntimeError("the agent of the job is gone")

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)
            if f"{HANG.name}:" in line:
                self._is_reported.set()
            if line.lstrip().startswith("hint:"):
                self._is_whole.set()
