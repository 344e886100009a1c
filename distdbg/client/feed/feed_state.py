"""What a live feed knows and shows, and how it changes by what comes of asking. Pure.

    state, next = step(state, event)     JOINING -> LIVE -> LOST -> LIVE ...     any -> OVER

`ReadEnd` is the one thing that is wanted done: what the job's folder tells of its end comes back as JobEnded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, assert_never

from distdbg.diagnose.finding import Verdict
from distdbg.record.rank_state import RankState
from distdbg.view.snapshot import FeedLink, RankRow, Snapshot

#: How long is waited before somebody who does not answer is asked again, at first and at the most.
_FIRST_PAUSE_S: Final = 0.25
_MAX_PAUSE_S: Final = 4.0
#: How long ranks that are missing are awaited after the first answer.
WAIT_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Joined:
    """An agent has answered: that of a run, on a host."""

    run: str
    host: str


@dataclass(frozen=True, slots=True)
class RoundMade:
    """What was asked was answered."""

    at: float
    now_s: float
    changes: Mapping[str, Any]
    """Fields of the snapshot."""
    world: int
    """How many ranks the job has; 0: not known."""
    why: str
    """What is not as usual."""


@dataclass(frozen=True, slots=True)
class NobodyAnswered:
    at: float
    why: str
    is_garbage: bool = False
    is_over: bool | None = None
    """Whether the job has ended, as seen from outside; None: it cannot be told."""


@dataclass(frozen=True, slots=True)
class FeedFailed:
    """Nothing new will be shown."""

    at: float


@dataclass(frozen=True, slots=True)
class JobEnded:
    """What its folder tells of its end."""

    at: float
    why: str
    """What can be done now."""
    ranks: Mapping[int, RankRow]
    verdict: Verdict | None
    has_folder: bool


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """Read how the job has ended -> JobEnded."""

    why: str = ""
    """What is known of it already."""


FeedEvent = Joined | RoundMade | NobodyAnswered | FeedFailed | JobEnded


@dataclass(frozen=True, slots=True)
class FirstFrame:
    """Whether the first frame may be drawn; then always.

    That is once all ranks of the host were read, or after a short while: a job of which half of the ranks
    are known looks as if those that are known were late. The head says '3 of 4 ranks' then.
    """

    since_s: float | None = None
    is_shown: bool = False

    def after(self, rows: Collection[RankRow], world: int, now_s: float) -> FirstFrame:
        """The state with these ranks of a job of `world`, as far as that is known."""
        since_s = now_s if self.since_s is None else self.since_s
        is_late = now_s - since_s >= WAIT_S
        return FirstFrame(since_s, self.is_shown or is_late or is_whole(rows, world))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedState:
    """What a feed knows of one job."""

    snapshot: Snapshot
    run: str = ""
    """Which has answered; '': none yet."""
    host: str = ""
    """The host of the agent that knows the job."""
    pause_s: float = _FIRST_PAUSE_S
    """How long to wait, should nobody answer."""
    first: FirstFrame = field(default_factory=FirstFrame)

    def shown(self, at: float, **changes: Any) -> FeedState:
        """The state with another snapshot, where that says something else than the one before."""
        old = self.snapshot
        new = {name: value for name, value in changes.items() if getattr(old, name) != value}
        return replace(self, snapshot=replace(old, at=at, **new)) if new else self


def step(state: FeedState, event: FeedEvent) -> tuple[FeedState, ReadEnd | None]:
    """The state after an event, and what is to be read."""
    match event:
        case Joined(run=run, host=host):
            if state.run and run != state.run:  # it must be the one that was shown
                return state, ReadEnd(f"run {state.run} has ended; {run} answers there now")
            return replace(state, run=run, host=host), None
        case RoundMade():
            return _on_round(state, event), None
        case NobodyAnswered():
            return _on_nobody(state, event)
        case FeedFailed(at=at):
            why = "the feed has failed: see the log"
            return state.shown(at, link=FeedLink.LOST, link_why=why), None
        case JobEnded():
            return _on_end(state, event), None
        case _:
            assert_never(event)


def _on_round(state: FeedState, event: RoundMade) -> FeedState:
    rows, world = event.changes.get("ranks", state.snapshot.ranks), event.world
    first = state.first.after(rows.values(), world, event.now_s)
    state = replace(state, pause_s=_FIRST_PAUSE_S, first=first)
    if first.is_shown:
        reported = {"link": FeedLink.LIVE, "link_why": event.why}
    else:
        why = f"{len(rows)} of {world} ranks were read" if world else "no rank was read yet"
        reported = {"link_why": why}
    return state.shown(event.at, **{**reported, **event.changes})


def _on_nobody(state: FeedState, event: NobodyAnswered) -> tuple[FeedState, ReadEnd | None]:
    is_over = event.is_over
    if is_over is None and not event.is_garbage:  # it cannot be seen from here
        rows = state.snapshot.ranks.values()
        is_over = bool(rows) and all(row.state.is_over for row in rows)
    if is_over:
        return state, ReadEnd()
    what = "the server is not an agent: " if event.is_garbage else "no agent answers: "
    if "agent" in event.why:  # it says so itself, or that one did answer
        what = ""
    link = FeedLink.LOST if state.run else FeedLink.JOINING
    state = replace(state, pause_s=min(2 * state.pause_s, _MAX_PAUSE_S))
    return state.shown(event.at, link=link, link_why=f"{what}{event.why}"), None


def _on_end(state: FeedState, event: JobEnded) -> FeedState:
    changes: dict[str, Any] = {}
    verdict = event.verdict
    if verdict is not None:
        changes["verdict"], root = verdict, verdict.root
        lines = (root.what, *filter(None, [root.advice])) if root is not None else ()
        if lines[:1] != state.snapshot.lines[:1]:
            changes["lines"] = lines  # else the agent has told more of the same
    elif event.has_folder and all(row.state is RankState.ENDED for row in event.ranks.values()):
        changes["verdict"], changes["lines"] = None, ()  # what was wrong has passed
    return state.shown(
        event.at,
        link=FeedLink.OVER,
        link_why=event.why,
        ranks=event.ranks,
        waits=(),
        stopped=(),
        **changes,
    )


def is_whole(rows: Collection[RankRow], world: int) -> bool:
    """Whether all ranks were read: none is missing, and all have a record, or none has one yet."""
    starting = sum(row.state is RankState.STARTING for row in rows)
    return bool(rows) and len(rows) >= world and starting in (0, len(rows))
