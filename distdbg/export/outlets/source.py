"""What outlets know of an agent: its name, its metrics, what was found and how ranks ended.

An outlet imports nothing of the agent: the agent makes it, and is what is described here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from distdbg.errors import DistNetworkError
from distdbg.export.metrics.model import Metrics
from distdbg.export.metrics.samples import AgentFacts, Exemplars
from distdbg.record.ends import RankEnd

if TYPE_CHECKING:
    from distdbg.diagnose.finding import Verdict
    from distdbg.diagnose.session import Session
    from distdbg.hosts.tail_sampling import KeptOp


RunInThread = Callable[[Callable[[], Any], Callable[[Future[Any]], None]], None]
"""Does what takes long in a thread; then calls the second in the loop, with the outcome of the first."""


class NotInTime(DistNetworkError):
    """The agent's loop did not answer."""


@dataclass(slots=True)
class ExportCounts:
    """What became of exports; each outlet writes its own words."""

    spans: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=dict)

    def put_into(self, facts: AgentFacts) -> AgentFacts:
        """The facts with these counts, as they are now."""
        return replace(
            facts,
            spans=dict(self.spans),
            failures=dict(self.failures),
            queues=dict(self.queues),
        )

    def fail(self, signal: str) -> bool:
        """Count one more; whether it is the first."""
        self.failures[signal] = self.failures.get(signal, 0) + 1
        return self.failures[signal] == 1


class OtherHostsMetrics(Protocol):
    """What the other hosts of the job have said of their metrics."""

    def addresses(self) -> dict[str, str]:
        """By host, where it serves them."""
        ...


class MetricsSource(Protocol):
    counts: ExportCounts
    exemplars: Callable[[], Exemplars]
    """Asked at each collection."""

    @property
    def sums(self) -> OtherHostsMetrics: ...

    def tick(self, now_ns: int) -> None:
        """In the agent's loop: take in what is new."""
        ...

    def finish(self, now_ns: int) -> None:
        """In the agent's loop: the ranks are over, or others will be started."""
        ...

    def metrics(self) -> Metrics:
        """Those of now, or of a moment ago; from any thread but the loop's. NotInTime."""
        ...

    def last_metrics(self, counts: ExportCounts | None = None) -> Metrics | None:
        """All that was read by now, also when the loop has ended; None: nothing was."""
        ...

    def close(self) -> None:
        """Nothing more is read."""
        ...


class RunFindings(Protocol):
    """What is found in one start of the ranks."""

    @property
    def version(self) -> int:
        """Another one with each verdict."""
        ...

    @property
    def verdict(self) -> Verdict | None:
        """The verdict that is true now; None: nothing is wrong."""
        ...

    @property
    def session(self) -> Session | None:
        """What it was made of."""
        ...


class OneStart(Protocol):
    """The ranks of this host in one start."""

    @property
    def folder(self) -> Path: ...

    @property
    def attempt(self) -> int: ...

    @property
    def ends(self) -> Sequence[RankEnd]: ...


class Sampling(Protocol):
    """The ops of which all hosts keep the spans, by way of the other agents."""

    def keep(self, keeps: Sequence[KeptOp]) -> None: ...

    def kept(self) -> list[KeptOp]:
        """Those that others have told of since this was asked last."""
        ...


class OutletSource(Protocol):
    """An agent whose metrics and traces are let out."""

    @property
    def run_name(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def addr(self) -> str:
        """Where other hosts reach this one; '' when nobody has said."""
        ...

    @property
    def metering(self) -> MetricsSource: ...

    @property
    def watch(self) -> RunFindings:
        """Another one after each start of the ranks; so is `roster`."""
        ...

    @property
    def roster(self) -> OneStart: ...

    @property
    def steering(self) -> Sampling: ...

    def run_in_thread(self, do: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Do what takes long in a thread; `then` is called in the loop with its outcome."""
        ...

    def print_lines(self, lines: list[str]) -> None:
        """Tell whoever looks at the job."""
        ...
