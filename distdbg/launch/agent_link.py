"""The launcher's link to the agent of its host: starts it, and sends it what the launcher knows.

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
from distdbg.launch.ended import EndedChild
from distdbg.launch.warden import Warden
from distdbg.record.ends import RankEnd, signal_name
from distdbg.record.folders import agent_socket

_log = logging.getLogger("distdbg.launch")

AGENT = "agent"
#: To remove its socket, when the launcher was killed.
_LINGER_S = 1.0
#: And to send the last numbers to other tools.
_LINGER_PUSHES_S = 3.0


class AgentLink:
    """One agent for all starts of the ranks; orders go to its standard input as JSON lines."""

    def __init__(self, warden: Warden) -> None:
        self._warden = warden
        self._fd: int | None = None
        self._is_wanted = False
        self._is_alive = False
        #: How it ended, when it has.
        self.how = ""
        self.log = Path()

    def start(
        self,
        folder: Path,
        run: str,
        host: str,
        environ: Mapping[str, str],
        extra: Sequence[str] = (),
        *,
        is_pushed: bool = False,
    ) -> None:
        """Start it in the run's folder; what it says goes to its log there.

        `is_pushed`: it has something to send when the job is over.
        """
        # It stands elsewhere, where a path that begins at our place leads nowhere.
        path = [str(Path(__file__).parents[2]), *filter(None, [environ.get("PYTHONPATH")])]
        environ = {**environ, "PYTHONPATH": os.pathsep.join(path)}
        argv = [sys.executable, "-P", "-m", "distdbg.agent", "--folder", str(folder)]
        argv += [f"--run={run}", f"--host={host}", "--orders", *extra]  # both may begin with a dash
        self.log = folder / f"agent-{host}.log"
        try:
            log = os.open(
                self.log,
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
                lingers_s=_LINGER_PUSHES_S if is_pushed else _LINGER_S,
                socket_path=agent_socket(run, host),
            )
            self._is_alive = True
            self._fd = self._warden.take_stdin(AGENT)
            os.set_blocking(self._fd, False)
            self._is_wanted = True
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
                self._hang_up()  # half a line: it cannot follow any further
        except OSError:
            self._hang_up()

    def on_end(self, ended: EndedChild) -> None:
        """A child of the warden that is no rank has ended."""
        if ended.name != AGENT:
            return
        self._is_alive = False
        if ended.signal is not None:
            self.how = f"was killed by {signal_name(ended.signal)}"
        else:
            self.how = f"exited with code {ended.exit_code}"
        self._hang_up()

    def is_alive(self) -> bool:
        """Whether it was started and is not known to have ended."""
        return self._is_alive

    @property
    def is_lost(self) -> bool:
        """Whether it was started, and has ended though nobody wanted it to leave."""
        return self._is_wanted and not self._is_alive

    def tell_end(self, end: RankEnd) -> None:
        self.send("ended", **json.loads(end.to_json()))

    def close(self) -> None:
        """It leaves by itself when nobody gives it orders any more."""
        self._is_wanted = False
        self._hang_up()

    def _hang_up(self) -> None:
        if self._fd is not None:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = None
