"""Metrics of all runs of this user on this host, from records alone: what `distdbg exporter` serves.

Runs that are named, or all running ones here and the newest finished ones. A run whose agent serves metrics
itself is left to that agent, as long as it does: twice the same series would be counted twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from distdbg.client.feed.connections import is_folder_over
from distdbg.errors import DistError
from distdbg.export.exporter.one_run import RunMeter
from distdbg.export.metrics.model import Metrics
from distdbg.export.outlets.targets import Neighbours
from distdbg.record.folders import list_runs

#: Runs that are over: the oldest is served no more when another one ends.
MAX_OVER: Final = 16
#: For how long what was collected is given to others as well, and who may wait for it how long.
_KEPT_S: Final = 0.5
_PATIENCE_S: Final = 8.0

_log = logging.getLogger("distdbg.agent")


class Runs:
    """Those runs. Thread-safe: one collection at a time."""

    def __init__(self, named: Sequence[Path] = (), *, neighbours: Neighbours) -> None:
        """`named`: the folders of runs; empty: all of this user."""
        self._named = list(named)
        self._neighbours = neighbours
        self._began_s = time.time()
        self._lock = threading.Lock()
        self._meters: dict[Path, RunMeter] = {}
        self._kept: tuple[float, list[Metrics]] | None = None

    def metrics(self) -> list[Metrics] | None:
        """The metrics by run, one set for each host; None when that takes too long."""
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return None
        try:
            if self._kept is not None and time.monotonic() - self._kept[0] < _KEPT_S:
                return self._kept[1]
            found = self._collect()
            self._kept = (time.monotonic(), found)
            return found
        finally:
            self._lock.release()

    def close(self) -> None:
        """Let go of all files."""
        with self._lock:
            for meter in self._meters.values():
                meter.close()
            self._meters.clear()

    def _collect(self) -> list[Metrics]:
        wanted = self._choose()
        for folder in self._meters.keys() - set(wanted):
            self._meters.pop(folder).close()
        found: list[Metrics] = []
        for folder in wanted:
            meter = self._meters.get(folder)
            is_reused = meter is not None and meter.is_over and folder in self._named
            if is_reused and is_folder_over(folder) is False:
                meter = None  # another run writes there now
            if meter is None:
                meter = self._meters[folder] = RunMeter(folder, folder.name, self._began_s)
            try:
                found += meter.collect()
            except (DistError, OSError) as error:
                _log.debug("%s is not served: %s", folder, error)
        return found

    def _choose(self) -> list[Path]:
        if self._named:  # one that is not there may come
            return [one for one in self._named if one in self._meters or one.is_dir()]
        served = {target.run for target in self._neighbours.targets()}
        alive, over = [], []
        for folder in list_runs():
            known = self._meters.get(folder)
            if (known is not None and known.is_over) or is_folder_over(folder) is not False:
                over.append(folder)
            elif folder.name not in served:
                alive.append(folder)
        return [*over[-MAX_OVER:], *alive]
