"""Our runs among the metrics of another Python program, by prometheus_client.

    from prometheus_client import REGISTRY
    from distdbg.exporter import RunsCollector

    REGISTRY.register(RunsCollector())

It serves what `distdbg exporter` serves, from the records of the runs: no rank and no agent is asked for a
number. For programs beside a job, or for those that look after many; a rank imports none of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client.registry import Collector

from distdbg.cli.chosen_run import find_run
from distdbg.errors import DistError
from distdbg.export.exporter.runs import Runs
from distdbg.export.metrics.client import describe, to_client
from distdbg.export.outlets.targets import Neighbours

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["RunsCollector"]

#: For how long a scrape waits until another one has asked the agents of this host where they serve.
_PATIENCE_S: Final = 5.0

_log = logging.getLogger("distdbg.exporter")


class RunsCollector(Collector):
    """Runs of this user on this host, for a registry of prometheus_client. Thread-safe.

    To make and to register it reads no run; `collect` does, at most twice a second.
    """

    def __init__(self, runs: Iterable[str | PathLike[str]] = ()) -> None:
        """Choose what is served.

        Args:
            runs: A name of a run or its beginning, "latest" as of now, or a folder as a path, which need
                not be there yet. None: all runs that live and whose agents do not serve them, and the newest
                16 that are over.

        Raises:
            UsageError: No run of this user has such a name, or several have.
        """
        folders = [find_run(run) if isinstance(run, str) else Path(run) for run in runs]
        named = list(dict.fromkeys(folder.absolute() for folder in folders))
        # Of named runs nobody has to be asked whether another one serves them.
        self._neighbours = Neighbours() if not named else None
        self._lock = threading.Lock()
        """Protects `_neighbours`, which is asked by one thread at a time."""
        self._runs = Runs(named, neighbours=self._neighbours or Neighbours())
        self._has_said = False

    def describe(self) -> Iterator[Metric]:
        """All families, without samples: no run is read for it."""
        return describe()

    def collect(self) -> Iterator[Metric]:
        """What the runs have done until now; nothing, said once, when they cannot be read in time."""
        self._look_for_agents()
        found = self._runs.metrics()
        if found is None and not self._has_said:
            self._has_said = True
            _log.warning("the runs cannot be read in time; their metrics are left out of a scrape")
        return to_client(*(found or ()))

    def close(self) -> None:
        """Let go of all files, once it is not registered any more. Idempotent."""
        self._runs.close()

    def _look_for_agents(self) -> None:
        if self._neighbours is None or not self._lock.acquire(timeout=_PATIENCE_S):
            return  # what was known before is good enough
        try:
            self._neighbours.look()
        except (DistError, OSError) as error:
            _log.debug("the agents of this host cannot be asked: %s", error)
        finally:
            self._lock.release()
