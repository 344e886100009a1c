"""Snapshot: what a dashboard shows of a job at one moment. Plain values; feeds make them, views draw them.

All times are seconds of unix time, so a view says how long ago they are by the clock that it is given.
A feed replaces what has changed and keeps the rest, so a view may compare by identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from distdbg.diagnose.finding import Verdict
from distdbg.record.rank_state import RankState


class FeedLink(StrEnum):
    """What stands between the dashboard and the job."""

    JOINING = "joining"  # nothing was heard yet
    LIVE = "live"
    LOST = "lost"  # the agent does not answer; what is shown is old
    OVER = "over"  # the job has ended
    REPLAY = "replay"  # read from files


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    rank: int
    host: str = ""
    pid: int = 0
    state: RankState = RankState.STARTING
    state_at: float = 0.0
    """Since when it is in this state."""
    moved_at: float = 0.0
    """When it last began or ended an op."""
    op: str = ""
    """The op it is in: "all_reduce #1042 on group 'dp'"; '' outside any."""
    site: str = ""
    why: str = ""
    seqs: tuple[tuple[str, int], ...] = ()
    """Per group: what it is called, and the collective issued last."""
    attempt: int = 0
    cpu: float | None = None
    """Share of a core; None: not known (a replay of a record, or the first moment)."""
    rss_nbytes: int | None = None
    gpu: float | None = None
    """Share of a GPU's time; None where there is none."""
    gpu_nbytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    name: str
    label: str
    ranks: tuple[int, ...]
    backend: str = ""
    timeout_s: float | None = None
    issued: Mapping[int, int] = field(default_factory=dict)
    """By rank, the collective issued last."""
    ended: Mapping[int, int] = field(default_factory=dict)
    closed: tuple[int, ...] = ()
    """Ranks that have destroyed it."""
    broken: Mapping[int, str] = field(default_factory=dict)

    @property
    def spread(self) -> int:
        """How far its first rank is before its last."""
        return max(self.issued.values()) - min(self.issued.values()) if self.issued else 0

    @property
    def in_flight(self) -> int:
        """How many of its ranks are in an op."""
        return sum(seq > self.ended.get(rank, 0) for rank, seq in self.issued.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """All ops of one kind on one group."""

    group: str
    kind: str
    count: int
    failed: int = 0
    nbytes: int = 0
    p50_s: float | None = None
    p99_s: float | None = None
    wait_p50_s: float | None = None
    """From issue until the last rank had come."""
    wait_p99_s: float | None = None
    bus_nbytes_per_s: float | None = None
    late: tuple[tuple[int, float], ...] = ()
    """Ranks and their share of the late arrivals, the worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRow:
    rank: int
    on: tuple[int, ...]
    is_any: bool = False
    """One of them is enough."""
    op: str = ""
    site: str = ""
    can_go_on: bool = True
    """False: it is in the cycle of a deadlock."""
    since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmedBreakpoint:
    id: int
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedAtPrompt:
    """A rank at the prompt of a debugger."""

    rank: int
    host: str = ""
    why: str = ""
    site: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    host: str
    is_lost: bool = False
    has_left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    number: int
    kind: str
    name: str
    """'all_reduce #42', or 'send to 3'."""
    group: str
    seq: int
    issued: float
    started: float | None
    """When the last rank had come; None: not yet, or not known."""
    ended: float | None
    """None: in flight."""
    has_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One line that a rank printed; equal lines of several ranks may be one."""

    at: float | None
    ranks: tuple[int, ...]
    stream: str
    """'out' or 'err'."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All of it. What a feed was not asked for (`Feed.want`) may be old or empty."""

    at: float = 0.0
    """The moment that is shown."""
    run: str = ""
    attempt: int = 0
    link: FeedLink = FeedLink.JOINING
    link_why: str = ""
    """For people: "the agent of n14 does not answer: ..."."""
    began: float | None = None
    world_size: int = 0
    ranks: Mapping[int, RankRow] = field(default_factory=dict)
    hosts: tuple[HostRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    ops: tuple[OpRow, ...] = ()
    waits: tuple[WaitRow, ...] = ()
    lines: tuple[str, ...] = ()
    """The verdict for people, the first line says it all; () while nothing is wrong."""
    verdict: Verdict | None = None
    """What was found; None while nobody has judged."""
    armed: tuple[ArmedBreakpoint, ...] = ()
    stopped: tuple[StoppedAtPrompt, ...] = ()
    is_paused: bool = False
    paused_s: float = 0.0
    """All pauses so far."""
    held_by: tuple[str, ...] = ()
    """The holder of the clock: 'the user', 'rank 3'."""
    is_debuggable: bool | None = None
    """Whether debuggers may be attached to ranks that run; None: not known."""
    abort: str = ""
    """Why the job was ended, where somebody has; the first line."""

    @property
    def is_over(self) -> bool:
        return self.link is FeedLink.OVER


def until_joined(found: Snapshot) -> Snapshot:
    """What is shown of it: of a job whose ranks were not all read yet, only that they are being read."""
    if found.link is not FeedLink.JOINING:
        return found
    return Snapshot(at=found.at, run=found.run, link=found.link, link_why=found.link_why)


#: An op of some rank: its group's name and number there, or the rank and the number of the event.
@dataclass(frozen=True, slots=True, kw_only=True)
class OpKey:
    group: str = ""
    seq: int = 0
    rank: int = -1
    number: int = 0
    """The number of the event in the record of `rank`; 0: by group and seq."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One rank's part of an op."""

    rank: int
    has_come: bool
    issued: float | None = None
    started: float | None = None
    ended: float | None = None
    status: str = ""
    """'ok', 'in flight', 'timeout' ..."""
    form: str = ""
    """'float32[4096], sum'."""
    site: str = ""
    stack: tuple[str, ...] = ()
    """The call site first."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpDetail:
    """One op, on all ranks that should call it."""

    name: str
    arrivals: tuple[Arrival, ...]
    says: tuple[str, ...] = ()
    """What differs between the ranks, in sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDetail:
    row: RankRow
    facts: tuple[tuple[str, str], ...] = ()
    """What else is known: ('argv', 'train.py --lr 3'), ('level', 'detail') ..."""
    in_flight: tuple[Bar, ...] = ()
    history: tuple[Bar, ...] = ()
    """The newest ops, the newest first."""
    stack: tuple[str, ...] = ()
    """The stack of the op that it is in, as recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackGroup:
    """Ranks whose thread is at the same place."""

    ranks: tuple[int, ...]
    thread: str
    frames: tuple[str, ...]
    """The innermost first: 'step (train.py:88)'."""
    holds_gil: bool = False
    is_main: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    groups: Sequence[StackGroup] = ()
    failed: Mapping[int, str] = field(default_factory=dict)
    how: str = ""
    """'py-spy', 'faulthandler', 'as recorded'."""
    at: float = 0.0
