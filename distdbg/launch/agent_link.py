"""The launcher's hand on the agent of its host: starts it, tells it what the launcher knows.

The job runs without the agent: one that cannot be started, or dies, costs one line.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from distdbg.errors import DistError
from distdbg.launch.ended import Ended, to_rank_end
from distdbg.launch.warden import Warden
from distdbg.record.ends import RankEnd
from distdbg.record.folders import agent_socket

_log = logging.getLogger("distdbg.launch")

AGENT = "agent"
#: To remove its socket, when the launcher was killed.
_LINGER_S = 1.0


class AgentLink:
    """One agent for all starts of the ranks; orders go to its standard input as JSON lines."""

    def __init__(self, warden: Warden) -> None:
        self._warden = warden
        self._host = ""
        self._fd: int | None = None

    def start(
        self,
        folder: Path,
        run: str,
        host: str,
        environ: Mapping[str, str],
        extra: Sequence[str] = (),
    ) -> None:
        """Start it in the run's folder; what it says goes to its log there."""
        self._host = host
        argv = [sys.executable, "-m", "distdbg.agent", "--folder", str(folder)]
        argv += ["--run", run, "--host", host, "--orders", *extra]
        try:
            log = os.open(
                folder / f"agent-{host}.log",
                os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
                0o600,
            )
        except OSError as error:
            _log.warning("the agent of %s has no log: %s", host, error.strerror)
            return
        try:
            # Its news go to the launcher's stderr, its own troubles to the log.
            self._warden.spawn(
                AGENT,
                argv,
                environ,
                cwd="/",
                stdin="pipe",
                stdout_fd=2,
                stderr_fd=log,
                lingers_s=_LINGER_S,
                socket_path=agent_socket(run, host),
            )
            self._fd = self._warden.take_stdin(AGENT)
            os.set_blocking(self._fd, False)
        except DistError as error:
            _log.warning("the agent of %s cannot be started: %s", host, error.what)
        finally:
            os.close(log)

    def send(self, order: str, **facts: object) -> None:
        """Tell it; what it cannot take any more is lost, and nobody waits."""
        if self._fd is None:
            return
        line = json.dumps({"order": order, **facts}).encode() + b"\n"
        try:
            if os.write(self._fd, line) != len(line):
                self.close()  # half a line: it cannot follow any further
        except OSError:
            self.close()

    @property
    def is_there(self) -> bool:
        """Whether it was started, and takes orders."""
        return self._fd is not None

    def tell_end(self, end: RankEnd) -> None:
        """A rank has ended."""
        self.send("ended", **json.loads(end.to_json()))

    def note_end(self, ended: Ended) -> None:
        """It has ended while ranks ran, which it does not do by itself."""
        self.close()
        how = to_rank_end(ended, rank=-1, host=self._host, wall_ns=0).how
        _log.warning(
            "the agent of %s (pid %d) %s; the job goes on without it", self._host, ended.pid, how
        )

    def close(self) -> None:
        """It leaves by itself when nobody gives it orders any more."""
        if self._fd is not None:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = None
