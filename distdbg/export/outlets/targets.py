"""Where the agents of this user on this host serve metrics: each is asked now and then, in a thread.

Whoever answers /sd says what is known here, and asks nobody while it answers.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any, Final

from distdbg.client.agent_client import AgentClient
from distdbg.errors import DistError
from distdbg.export.http.sd import MetricsTarget
from distdbg.record.folders import agents_folder

#: How often sockets that came or went are looked for, and how often one that is known is asked again.
_LOOK_S: Final = 2.0
_AGAIN_S: Final = 10.0
_PATIENCE_S: Final = 1.0
_MAX_AGENTS: Final = 256
_MAX_HOSTS: Final = 4096
_END_S: Final = 0.2

_log = logging.getLogger("distdbg.agent")


class Neighbours:
    """The other agents here. Thread-safe."""

    def __init__(self, run: str = "", host: str = "", *, tempdir: str | None = None) -> None:
        """`run` and `host`: of who asks, who is none of the others."""
        self._own = f"{run}@{host}.sock" if run else ""
        self._tempdir = tempdir
        self._known: dict[Path, tuple[float, tuple[MetricsTarget, ...]]] = {}
        """When each is asked again, and what it has said."""
        self._targets: tuple[MetricsTarget, ...] = ()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look. Idempotent."""
        if self._thread is None and not self._end.is_set():
            self._thread = threading.Thread(
                target=self._run_thread, name="distdbg-neighbours", daemon=True
            )
            self._thread.start()

    def targets(self) -> tuple[MetricsTarget, ...]:
        """What they have said last."""
        return self._targets

    def look(self) -> None:
        """Ask who is new, or was asked a while ago."""
        paths = sorted(agents_folder(self._tempdir).glob("*.sock"))[:_MAX_AGENTS]
        now = time.monotonic()
        for path in self._known.keys() - set(paths):
            del self._known[path]
        for path in paths:
            if path.name == self._own or now < self._known.get(path, (0.0, ()))[0]:
                continue
            if self._end.is_set():
                return
            found = ask_targets(path)
            if found is None:
                self._known.pop(path, None)  # it begins, or is gone
            else:
                self._known[path] = (now + _AGAIN_S, found)
        self._targets = tuple(one for _, found in self._known.values() for one in found)

    def close(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(_END_S)

    def _run_thread(self) -> None:
        try:
            while True:
                try:
                    self.look()
                except (DistError, OSError) as error:
                    _log.debug("the other agents of this host cannot be asked: %s", error)
                if self._end.wait(_LOOK_S):
                    return
        except Exception:  # noqa: BLE001  # an observer that fails says so once
            _log.exception("/sd names this job alone from now on")


def ask_targets(path: Path) -> tuple[MetricsTarget, ...] | None:
    """What an agent knows of where metrics are served; () when it serves none, None: nobody answers."""
    try:
        with AgentClient.at(path, timeout_s=_PATIENCE_S) as client:
            about = client.ask("about")
    except (DistError, OSError):
        return None
    return read_targets(about)


def read_targets(about: Any) -> tuple[MetricsTarget, ...]:
    """From an answer to `about`."""
    metrics = about.get("metrics") if isinstance(about, dict) else None
    if not isinstance(metrics, dict):
        return ()
    run, host = str(about.get("run", "")), str(about.get("host", ""))
    scheme = "https" if metrics.get("scheme") == "https" else "http"
    found = []
    if isinstance(metrics.get("address"), str):
        found.append(MetricsTarget(metrics["address"], run, host, scheme))
    hosts = metrics.get("hosts")
    if isinstance(hosts, dict):
        found += [
            MetricsTarget(str(at), run, str(of), scheme)
            for of, at in list(hosts.items())[:_MAX_HOSTS]
        ]
    return tuple(found)
