"""The instructions of a diagnosis: it wants these things done, and `watch` does them. Pure.

Those with an arrow come back as an event: at once, but for Judge and TakeStacks, which take a while. What is
done at once is done as of `at_ns`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdbg.agent.judging.diagnosis_events import AccountMade
    from distdbg.agent.judging.judged_verdict import JudgedVerdict
    from distdbg.hosts.accounts import HostAccountState


@dataclass(frozen=True, slots=True)
class LoadJudge:
    """Import what judging takes, before there is any hurry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishJob:
    """Read all records once more: a launcher is ending the ranks -> JobFinished."""

    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeAccount:
    """Take down where the ranks of this host stand -> AccountMade."""

    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Diagnose the job -> VerdictMade or JudgingFailed."""

    own: AccountMade
    others: tuple[HostAccountState, ...] = ()
    is_last: bool = False
    """Whether to do it at once: the ranks are over, and this loop may be as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWaits:
    """Look whether these ranks still wait where they were judged to wait -> WaitsRead."""

    at_ns: int
    ranks: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAccounts:
    """Ask all other hosts for accounts, before these ranks are named as the cause -> AccountsRequested."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtJob:
    """See what all ranks do and whether somebody has ended the job -> JobSeen."""

    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAccount:
    """Tell the root where the ranks of this host stand, as the answer to its request of this number."""

    at_ns: int
    request: int
    has_found: bool
    """Whether to tell of latent errors as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeStacks:
    """Write down where those of these ranks are that live here -> StacksTaken."""

    ranks: tuple[int, ...]
    is_before_abort: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintLines:
    """Tell whoever looks at the job."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteVerdict:
    """Put it into verdict.json."""

    judged: JudgedVerdict


@dataclass(frozen=True, slots=True)
class WithdrawVerdict:
    """Take verdict.json away: it is not true any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortJob:
    """Have all ranks of all hosts raise this."""

    judged: JudgedVerdict


Instruction = (
    LoadJudge
    | FinishJob
    | MakeAccount
    | Judge
    | ReadWaits
    | RequestAccounts
    | LookAtJob
    | SendAccount
    | TakeStacks
    | PrintLines
    | WriteVerdict
    | WithdrawVerdict
    | AbortJob
)
