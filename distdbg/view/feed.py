"""Feed: where a dashboard gets its data. Views cannot tell a running job from a replay or a test.

`latest`, `want` and `bars` return at once. What may take long is marked, and the app calls it in a
thread. A feed raises DistError (or nothing): a job that dies, an agent that does not answer, are states of
the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from distdbg.view.snapshot import (
    Bar,
    LogRow,
    OpDetail,
    OpKey,
    RankDetail,
    Snapshot,
    Stacks,
)


class Topic(StrEnum):
    """What a view needs beside the ranks, the verdict, the breakpoints and the clock."""

    GROUPS = "groups"
    OPS = "ops"
    WAITS = "waits"
    BARS = "bars"
    LOG = "log"


class Action(StrEnum):
    """What changes the job."""

    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"  # what=
    STOP = "stop"
    BREAK = "break"  # rule=
    CLEAR = "clear"  # id=; none: all
    CONTINUE = "continue"  # ranks=


class Feed(Protocol):
    """One job."""

    @property
    def title(self) -> str:
        """Where it comes from: a run, 'n14:4711', a file."""
        ...

    @property
    def can_change(self) -> bool:
        """Whether `do` does anything: a replay cannot be paused."""
        ...

    @property
    def address(self) -> str:
        """What `distdbg attach` takes to reach the same job; '' when nobody can."""
        ...

    def latest(self) -> Snapshot:
        """What is known now; the same object as long as nothing has changed."""
        ...

    def want(self, topics: frozenset[Topic]) -> None:
        """What the visible view needs from now on."""
        ...

    def bars(self, ranks: Sequence[int], begin: float, end: float) -> Mapping[int, Sequence[Bar]]:
        """The ops of these ranks that touch the time between, oldest first; as many as are kept."""
        ...

    def log(self) -> Sequence[LogRow]:
        """The newest lines, the newest last; as many as are kept."""
        ...

    def op(self, key: OpKey) -> OpDetail | None:
        """One op on all ranks; None: not known any more. May take seconds."""
        ...

    def rank(self, rank: int) -> RankDetail | None:
        """One rank closely. May take seconds."""
        ...

    def stacks(self, ranks: Sequence[int] | None, native: bool) -> Stacks:
        """Where ranks are; None: all. May take seconds."""
        ...

    def do(self, action: Action, **words: object) -> str:
        """Change the job; what came of it, for people. May take seconds. DistError: refused."""
        ...

    def span(self) -> tuple[float, float] | None:
        """The first and last moment of a replay; None: it is live."""
        ...

    def seek(self, at: float) -> None:
        """Show this moment of a replay. `latest` follows, at once or soon."""
        ...

    def close(self) -> None:
        """Let go of everything; idempotent."""
        ...
