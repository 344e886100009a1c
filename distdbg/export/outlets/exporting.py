"""The exports of an agent for other tools, each made only when asked for.

    served   /metrics and /sd over HTTP           serving.py
    written  a text file, every 15 s              sending.py
    pushed   to a Pushgateway, every 15 s         sending.py
    sent     traces, metrics and logs by OTLP     `_make_otlp`

Each is an outlet with its own threads. None blocks the loop. An outlet that fails is logged once and
dropped; the others, the ranks and the agent go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from distdbg import config
from distdbg.errors import DistError
from distdbg.export.outlets.source import OutletSource
from distdbg.launch.exports import ExportOptions

_log = logging.getLogger("distdbg.agent")


class Outlet(Protocol):
    """One way out. Called in the agent's loop; what takes time is done in a thread of its own."""

    def tick(self, now_ns: int) -> None:
        """Ten times a second."""
        ...

    def begin_anew(self) -> None:
        """The ranks were started again: `agent.roster` is another one."""
        ...

    def close(self, deadline_ns: int) -> None:
        """The job is over: let out what is left, until then at the latest."""
        ...


#: Makes an outlet where it is asked for. DistError or OSError: it cannot be, which is said once.
Maker = Callable[[OutletSource, ExportOptions], Outlet | None]


class AgentOutlets:
    def __init__(
        self, agent: OutletSource, exports: ExportOptions, *, makers: Sequence[Maker] | None = None
    ) -> None:
        """`makers`: of the outlets, in the order in which they end; those above when not given."""
        self._agent = agent
        self._outlets: list[Outlet] = []
        self._metering = agent.metering
        self._serving: Any = None
        self._sending: Any = None
        self._is_dropped = False
        self._end_s = config.read_float("DISTDBG_EXPORT_END_S")
        for make in makers or (_make_serving, _make_sending, _make_otlp):
            self._add(make, exports)

    def tick(self, now_ns: int) -> None:
        """Let each outlet do what is due."""
        if not self._is_dropped:
            self._each("is no longer exported", lambda one: one.tick(now_ns))
            self._try(lambda: self._metering.tick(now_ns))

    def begin_anew(self) -> None:
        """Other ranks than before, in another folder."""
        self._each("is no longer exported", lambda one: one.begin_anew())

    def finish(self) -> None:
        """The ranks of this start are over, and their records are still there."""
        if not self._is_dropped:
            self._try(lambda: self._metering.finish(time.monotonic_ns()))

    def close(self) -> None:
        """Let out what is left, for as long as DISTDBG_EXPORT_END_S says."""
        self.finish()
        # Whoever waits for the loop would have to wait for the end of this, and others for them.
        self._try(self._metering.close)
        deadline_ns = time.monotonic_ns() + int(self._end_s * 1e9)
        left = len(self._outlets)

        def end(outlet: Outlet) -> None:
            # One after the other: who is first leaves time for those that follow.
            nonlocal left
            now_ns = time.monotonic_ns()
            outlet.close(now_ns + max(0, deadline_ns - now_ns) // left)
            left -= 1

        counts = self._metering.counts
        before = counts.failures.copy()
        self._each("is not exported to its end", end)
        if self._sending is not None and counts.failures != before:
            self._try(self._sending.write_again)
        self._outlets.clear()

    def plain(self) -> dict[str, Any]:
        """For the API's `about`: where metrics are served, here and on other hosts."""
        return {
            "address": self._serving.address if self._serving is not None else None,
            "scheme": self._serving.scheme if self._serving is not None else None,
            "hosts": self._serving.hosts() if self._serving is not None else {},
        }

    def _add(self, make: Maker, exports: ExportOptions) -> None:
        try:
            outlet = make(self._agent, exports)
        except (DistError, OSError) as error:
            self._agent.print_lines(str(error).splitlines())
            return
        if outlet is not None:
            self._outlets.append(outlet)
            if hasattr(outlet, "address"):
                self._serving = outlet
            if hasattr(outlet, "write_again"):
                self._sending = outlet

    def _try(self, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception:  # noqa: BLE001  # what was counted until now is exported all the same
            self._is_dropped = True
            _log.exception("exported metrics are no longer updated")

    def _each(self, what: str, do: Callable[[Outlet], None]) -> None:
        for outlet in list(self._outlets):
            try:
                do(outlet)
            except Exception:  # noqa: BLE001  # an observer that fails is dropped
                _log.exception("%s %s", type(outlet).__name__, what)
                self._outlets.remove(outlet)


def _make_serving(agent: OutletSource, exports: ExportOptions) -> Outlet | None:
    if exports.listen is None:
        return None
    from distdbg.export.outlets.serving import ServerOutlet

    return ServerOutlet(agent, exports)


def _make_sending(agent: OutletSource, exports: ExportOptions) -> Outlet | None:
    if exports.folder is None and exports.push is None:
        return None
    from distdbg.export.outlets.sending import PushOutlet

    return PushOutlet(agent, exports)


def _make_otlp(agent: OutletSource, exports: ExportOptions) -> Outlet | None:
    if not exports.signals:
        return None
    from distdbg.export.outlets.otlp import TracingOutlet

    return TracingOutlet(agent, exports.signals)
