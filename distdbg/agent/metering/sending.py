"""Metrics that are brought out: a text file, a Pushgateway. Every 15 seconds, and at the end.

A thread does both, one after the other. What does not arrive is counted, said once, and tried again the next
time. The last numbers of a job stay where they are: of a short one they are all there is. Text files that
nobody has written for a while are of jobs that are over; the next job that writes into the folder removes
them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from distdbg.agent.metering.metering import NotInTime
from distdbg.errors import DistError
from distdbg.export.metrics.model import Metrics
from distdbg.export.metrics.push import Gateway
from distdbg.export.metrics.textfile import write_textfile
from distdbg.launch.exports import Exports

if TYPE_CHECKING:
    from distdbg.agent.host_agent import HostAgent

EVERY_S: Final = 15.0
#: How long one push may take.
_PUSH_S: Final = 5.0
#: After which a text file is of nobody.
_OLD_S: Final = 3600.0
_LEAST_S: Final = 0.05

_log = logging.getLogger("distdbg.agent")


class Sending:
    """One outlet: the thread that brings metrics out."""

    def __init__(self, agent: HostAgent, exports: Exports) -> None:
        """ConfigError for a URL that is none."""
        self._agent = agent
        self._metering = agent.metering
        self._folder = exports.folder
        self._gateway = Gateway(exports.push) if exports.push is not None else None
        self._end = threading.Event()
        self._until = 0.0
        """When the last has to be out."""
        self._thread = threading.Thread(target=self._run, name="distdbg-sending", daemon=True)
        self._thread.start()

    def tick(self, now_ns: int) -> None:
        """The thread has a clock of its own."""

    def begin_anew(self) -> None:
        """The totals go on."""

    def close(self, deadline_ns: int) -> None:
        self._until = deadline_ns / 1e9
        self._end.set()
        self._thread.join(max(0.0, self._until - time.monotonic()))

    # ------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            if self._folder is not None:
                remove_old(self._folder, time.time())
            while not self._end.wait(EVERY_S):
                with suppress(NotInTime):
                    self._send(self._metering.metrics(), _PUSH_S)
            metrics = self._metering.last_metrics()
            if metrics is not None:
                self._send(metrics, max(_LEAST_S, self._until - time.monotonic()))
        except Exception:  # noqa: BLE001  # the job is none the worse
            _log.exception("metrics are brought out no more")

    def _send(self, metrics: Metrics, timeout_s: float) -> None:
        folder, gateway = self._folder, self._gateway
        if folder is not None:
            self._try("textfile", lambda: write_textfile(folder, metrics))
        if gateway is not None:
            self._try("push", lambda: gateway.push(metrics, timeout_s))

    def _try(self, signal: str, do: Callable[[], object]) -> None:
        try:
            do()
        except (DistError, OSError) as error:
            if self._metering.counts.fail(signal):
                what = error.what if isinstance(error, DistError) else str(error)
                self._agent.say(
                    [what, "  it is tried again; how often it failed is in the metrics"]
                )


def remove_old(folder: Path, wall_s: float) -> None:
    """Remove our text files that nobody has written for an hour."""
    for path in folder.glob("distdbg_*.prom"):
        with suppress(OSError):  # another user's, or gone
            facts = path.lstat()
            if facts.st_uid == os.getuid() and wall_s - facts.st_mtime > _OLD_S:
                path.unlink()
