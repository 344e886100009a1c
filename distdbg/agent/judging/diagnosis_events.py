"""The events of a diagnosis: what was seen of ranks, hosts, clock and stacks. Pure.

    RecordsRead       the records of this host's ranks were looked at, ten times a second
    AccountReceived   another host has told where its ranks stand
    HostLost          it is not in touch any more
    RanksEnded        processes of ranks have ended
    ClockSeen         somebody holds the clock of the job, or lets it go
    AccountAsked      the root asks this host for a new account
    JobFinished       the job is over, or the launcher ends it
    Dropped           this start of the ranks is looked at no more

What instructions ask for comes back as an event too: AccountMade, VerdictMade, JudgingFailed, WaitsRead,
AccountsRequested, JobSeen, StacksTaken.

Events are values: nothing has to be read to handle one. So a list of them can be kept, and replayed without
ranks, files or hosts (`decide.step`). Times are monotonic nanoseconds of this host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from distdbg.agent.judging.account import Account
from distdbg.agent.judging.diagnosis_triggers import Triggers
from distdbg.hosts.accounts import AccountRequest, HostAccountState
from distdbg.record.rank_state import RankState

if TYPE_CHECKING:
    from distdbg.agent.judging.judged_verdict import JudgedVerdict


class ClockHold(StrEnum):
    """Says whether the job's clock stands on this host, and because of whom."""

    NOBODY = "nobody"
    PAUSED = "paused"
    DEBUGGED = "debugged"
    """A rank of any host is in a debugger."""


class SeenEnd(NamedTuple):
    """How one rank ended, as far as it matters here."""

    rank: int
    was_asked: bool
    """Whether its launcher ended it."""
    is_failure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsRead:
    """What the records of this host's ranks say now."""

    at_ns: int
    is_root: bool = True
    """Whether this host diagnoses for all."""
    has_pulse: bool = False
    """Whether any rank has written a record."""
    rank_triggers: Triggers = ()
    """The ranks that are a reason to diagnose the job (`find_triggers`)."""
    prompts: Triggers = ()
    """Where there are none: the ranks in debuggers, for the root (`find_prompts`)."""
    latent: int = 0
    """How many latent errors the ranks have found themselves."""

    @property
    def triggers(self) -> Triggers:
        """Where its ranks stand, and what they have found."""
        return (*self.rank_triggers, ("latent", self.latent)) if self.latent else self.rank_triggers


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountReceived:
    """The last account of another host; it replaces the one before."""

    reported: HostAccountState


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLost:
    """A host is no longer in touch: what it told last does not count."""

    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksEnded:
    """All ends that are known now."""

    ends: tuple[SeenEnd, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSeen:
    """Another one holds the clock than before."""

    hold: ClockHold


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountAsked:
    """The root asks whether ranks of this host still wait."""

    request: AccountRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished:
    """The ranks are over, or others will be started; `last` was read after that."""

    last: RecordsRead
    states: Mapping[int, RankState]
    """The states of the ranks of all hosts."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What is still under way must not touch these ranks any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountMade:
    """What this host tells of its own ranks."""

    at_ns: int
    wall_ns: int
    """At the same moment."""
    account: Account
    found: Sequence[Mapping[str, Any]] = ()
    """What its ranks have found themselves (`error_times.ErrorTimes`)."""
    last_good: Mapping[int, int] = field(default_factory=dict)
    """By rank, when the last op was issued that went well; of ranks that have found something."""
    cost_ns: int = 0
    """CPU time that it took to make this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictMade:
    at_ns: int
    judged: JudgedVerdict
    cost_ns: int = 0
    """CPU time, that of the accounts included."""


@dataclass(frozen=True, slots=True)
class JudgingFailed:
    """The accounts cannot be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsRead:
    """The ranks of a proof were looked at again."""

    at_ns: int
    still_wait: bool
    """Whether those of this host still wait in the ops in which they were judged."""
    elsewhere: tuple[int, ...] = ()
    """Those of other hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountsRequested:
    """All other hosts are asked to tell again."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """What has to be known just before something is said."""

    at_ns: int
    states: Mapping[int, RankState]
    """The states of the ranks of all hosts."""
    is_aborted: bool = False
    """Whether somebody has ended the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksTaken:
    """The stacks of the ranks of the cause are written down, as far as they could be taken."""

    is_before_abort: bool
    """Whether the job is to be aborted now."""


Event = (
    RecordsRead
    | AccountReceived
    | HostLost
    | RanksEnded
    | ClockSeen
    | AccountAsked
    | JobFinished
    | Dropped
    | AccountMade
    | VerdictMade
    | JudgingFailed
    | WaitsRead
    | AccountsRequested
    | JobSeen
    | StacksTaken
)
