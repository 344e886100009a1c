"""Writes metrics to a text file and to a Pushgateway, every 15 seconds and at the end.

Each has a thread of its own, so that a gateway that hangs keeps no file from being written. What does not
arrive is counted, said once, and tried again the next time. The last numbers of a job stay where they are:
of a short one they are all there is. Text files that nobody has written for a while are of jobs that are
over; the next job that writes into the folder removes them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from distdbg.errors import DistError
from distdbg.export.metrics.model import Metrics
from distdbg.export.metrics.push import Gateway
from distdbg.export.metrics.textfile import write_textfile
from distdbg.export.outlets.source import NotInTime, OutletSource
from distdbg.launch.exports import ExportOptions

EVERY_S: Final = 15.0
#: How long one push may take.
_PUSH_S: Final = 5.0
#: After which a text file is of nobody.
_OLD_S: Final = 3600.0
_MIN_S: Final = 0.05

_log = logging.getLogger("distdbg.agent")


class PushOutlet:
    """One outlet: the threads that bring metrics out."""

    def __init__(self, agent: OutletSource, exports: ExportOptions) -> None:
        """ConfigError for a URL that is none."""
        self._agent = agent
        self._metering = agent.metering
        self._folder = exports.folder
        self._gateway = Gateway(exports.push) if exports.push is not None else None
        self._end = threading.Event()
        self._until = 0.0
        """When the last has to be out."""
        ways: list[Callable[[Metrics, float], None]] = []
        if self._folder is not None:
            ways.append(self._write)
        if self._gateway is not None:
            ways.append(self._push)
        self._threads = [
            threading.Thread(target=self._run, args=(way,), name="distdbg-sending", daemon=True)
            for way in ways
        ]
        for thread in self._threads:
            thread.start()

    def tick(self, now_ns: int) -> None:
        """The threads have a clock of their own."""

    def begin_anew(self) -> None:
        """The totals go on."""

    def close(self, deadline_ns: int) -> None:
        self._until = deadline_ns / 1e9
        self._end.set()
        for thread in self._threads:
            thread.join(max(0.0, self._until - time.monotonic()))

    def write_again(self) -> None:
        """The file once more: other exports have failed since it was closed."""
        if self._folder is None or self._threads[0].is_alive():
            return
        metrics = self._metering.last_metrics(self._metering.counts)
        if metrics is not None:
            self._write(metrics, _MIN_S)

    # ------------------------------------------------------------------------------- the threads

    def _run(self, send: Callable[[Metrics, float], None]) -> None:
        try:
            if send == self._write and self._folder is not None:
                remove_old(self._folder, time.time())
            while not self._end.wait(EVERY_S):
                with suppress(NotInTime):
                    send(self._metering.metrics(), _PUSH_S)
            metrics = self._metering.last_metrics()
            if metrics is not None:
                send(metrics, max(_MIN_S, self._until - time.monotonic()))
        except Exception:  # noqa: BLE001  # the job is none the worse
            _log.exception("metrics are no longer written")

    def _write(self, metrics: Metrics, timeout_s: float) -> None:
        if (folder := self._folder) is not None:
            self._try("textfile", lambda: write_textfile(folder, metrics))

    def _push(self, metrics: Metrics, timeout_s: float) -> None:
        if (gateway := self._gateway) is not None:
            self._try("push", lambda: gateway.push(metrics, timeout_s))

    def _try(self, signal: str, do: Callable[[], object]) -> None:
        try:
            do()
        except (DistError, OSError) as error:
            if self._metering.counts.fail(signal):
                what = error.what if isinstance(error, DistError) else str(error)
                self._agent.print_lines([what, "  it is retried; the metrics count failures"])


def remove_old(folder: Path, wall_s: float) -> None:
    """Remove our text files, and drafts of them, that nobody has written for an hour."""
    for path in (*folder.glob("distdbg_*.prom"), *folder.glob("distdbg_*.prom.*.tmp")):
        with suppress(OSError):  # another user's, or gone
            facts = path.lstat()
            if facts.st_uid == os.getuid() and wall_s - facts.st_mtime > _OLD_S:
                path.unlink()
