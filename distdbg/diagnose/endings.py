"""Tells how each rank ended, and whether by its own fault. Pure.

When one rank fails the others fail a moment later. Time alone does not show which was first: clocks of
hosts differ, and the process of a rank with much memory may end long after the ranks that lost it. So the
rank's own error comes first:

    CAUSE         it failed by itself: a signal, out of memory, an exception, an exit code
    VICTIM        its error names the peer that it lost, or the verdict that aborted it
    SUSPECT       it timed out, or lost a connection to an unknown peer
    MISMATCHED    it ended with an error that all members of a group have: a mismatch, a NaN, replicas
                  that differ
    INTERRUPTED   by SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2 from outside, or by SIGINT: from outside or not,
                  as a KeyboardInterrupt that the program raises ends Python in the same way
    ENDED         terminated by the launcher, because of another rank or because it was asked to stop
    FINE          it returned, left, or exited with code 0
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from distdbg.diagnose.failures import Failure, Failures, last_of
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.wording import say_site, short_site
from distdbg.record.carried_traceback import words_of_failed
from distdbg.record.ends import BY_SYS_EXIT, RankEnd
from distdbg.record.format import Exit
from distdbg.record.printed_stack import own_frame


class EndRole(StrEnum):
    """What the end of a rank has to do with the failure of the job."""

    CAUSE = "cause"
    VICTIM = "victim"
    SUSPECT = "suspect"
    MISMATCHED = "mismatched"
    INTERRUPTED = "interrupted"
    ENDED = "ended"
    FINE = "fine"


#: SIGUSR1 and SIGUSR2 are notices of schedulers, which end a program that does not handle them.
_FROM_OUTSIDE: Final = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
#: What libraries say when the other end of a connection is gone, and not who it was.
_LOST_CONNECTION: Final = re.compile(
    r"connection (?:was )?(?:closed|reset)|broken pipe|remote process exited"
    r"|communicator was aborted|socket closed",
    re.IGNORECASE,
)
#: What the others raise of a rank that somebody has ended, and with it the meeting of all.
_MET_NO_MORE: Final = " was interrupted while the ranks were meeting"
_PARTS: Final = {
    "PeerLost": EndRole.VICTIM,
    "RankLeft": EndRole.VICTIM,
    "JobAborted": EndRole.VICTIM,
    "DebuggerQuit": EndRole.VICTIM,  # of its user
    "MismatchError": EndRole.MISMATCHED,
    "NonFiniteError": EndRole.MISMATCHED,
    "DivergedError": EndRole.MISMATCHED,
    "BufferChangedError": EndRole.MISMATCHED,
    "OpTimeout": EndRole.SUSPECT,
    "DistNetworkError": EndRole.SUSPECT,
    "DistStoreError": EndRole.SUSPECT,
    "CollectiveError": EndRole.SUSPECT,  # its group was broken by what came before
    "KeyboardInterrupt": EndRole.INTERRUPTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnding:
    """One rank that is gone, or has said that it goes."""

    rank: int
    part: EndRole
    at_ns: int
    """When it failed, often a while before its process had ended; session's clock, NEVER."""
    how: str
    """'raised ValueError: no data', 'was killed by SIGSEGV', 'returned'."""
    reason: str = ""
    """'ValueError: no data'; '' for one that said nothing."""
    where: str = ""
    """Where it raised: 'train.py:88 (step)'."""
    hint: str = ""
    """What its error itself advises."""
    error: Failure | None = None
    """The error of an op with which it went."""
    end: RankEnd | None = None


#: How each rank ended.
Endings = Mapping[int, RankEnding]


def endings_of(session: Session, failures: Failures) -> dict[int, RankEnding]:
    """All ranks that are gone or going, by rank."""
    found = {}
    for rank, log in sorted(session.ranks.items()):
        ending = _of_rank(session, log, last_of(failures, rank))
        if ending is not None:
            found[rank] = ending
    return _pass_on(_spare_the_first(session, found))


def _of_rank(session: Session, log: RankLog, error: Failure | None) -> RankEnding | None:
    end, reason = log.end, log.exit_what if log.exit is Exit.RAISED else ""
    if end is None and log.exit is None:
        return None
    said = log.exit is Exit.RAISED
    own_ns = log.exit_ns if log.exit is not None and log.exit_ns != NEVER else NEVER
    if end is not None and not (said and own_ns != NEVER):
        own_ns = end.ended_ns if end.is_failure or own_ns == NEVER else own_ns
    is_failure = said or log.has_failed
    return RankEnding(
        rank=log.rank,
        part=_part(end, reason, error) if is_failure else EndRole.FINE,
        at_ns=session.time_ns(log.rank, own_ns),
        how=_how(log, reason) if is_failure else _how_well(log),
        reason=reason,
        where=_where(log, said=said, is_failure=is_failure),
        hint=log.exit_hint if said else _hint_of_code(log),
        error=error if is_failure else None,
        end=end,
    )


def _hint_of_code(log: RankLog) -> str:
    has_code = log.end is not None and log.end.cause == "exited" and bool(log.end.exit_code)
    return BY_SYS_EXIT if has_code and log.exit is Exit.RETURNED else ""


def _where(log: RankLog, *, said: bool, is_failure: bool) -> str:
    """The program's own line, not that of a library below it, where the stack is known."""
    own = own_frame(log.left_stack) if is_failure else None
    return say_site(own) or (short_site(log.exit_where) if said else "")


def _part(end: RankEnd | None, reason: str, error: Failure | None) -> EndRole:
    if end is not None and end.was_asked:
        return EndRole.ENDED
    by_signal = end is not None and end.cause in ("signal", "oom")
    if by_signal and not reason:
        assert end is not None
        if end.signal == signal.SIGABRT and error is not None:
            return _PARTS.get(
                error.type, EndRole.CAUSE
            )  # watchdogs abort the process after a timeout
        return EndRole.INTERRUPTED if end.signal in _FROM_OUTSIDE else EndRole.CAUSE
    name = reason.partition(":")[0].strip().rpartition(".")[2]
    if name in _PARTS:
        return _PARTS[name]
    if name == "RendezvousError" and "; missing rank" in reason:
        return EndRole.SUSPECT
    if name == "RendezvousError" and _MET_NO_MORE in reason:
        return EndRole.INTERRUPTED
    if reason and _LOST_CONNECTION.search(reason):
        return EndRole.SUSPECT
    # It caught the error of an op, did nothing more, and gave up in words or a code of its own.
    return _PARTS.get(error.type, EndRole.CAUSE) if error is not None else EndRole.CAUSE


def swept_away(endings: Endings) -> frozenset[int]:
    """Ranks that a launcher or a signal ended after another one had failed."""
    others = [
        e.at_ns
        for e in endings.values()
        if e.part not in (EndRole.INTERRUPTED, EndRole.ENDED, EndRole.FINE) and e.at_ns != NEVER
    ]
    first_ns = min(others, default=2**63)
    return frozenset(
        e.rank
        for e in endings.values()
        if e.part is EndRole.ENDED or (e.part is EndRole.INTERRUPTED and e.at_ns > first_ns)
    )


def _spare_the_first(session: Session, endings: dict[int, RankEnding]) -> dict[int, RankEnding]:
    """A rank that the launcher wanted to end may have failed by itself already, as the first."""
    own = [e.at_ns for e in endings.values() if e.part not in (EndRole.ENDED, EndRole.FINE)]
    own = [at_ns for at_ns in own if at_ns != NEVER]
    first_ns = min(own, default=None)
    for rank, ending in endings.items():
        if ending.part is not EndRole.ENDED or not ending.reason or ending.at_ns == NEVER:
            continue  # crashes on the way out are common
        asked_ns = None if ending.end is None else ending.end.asked_ns
        if asked_ns is not None and ending.at_ns >= session.time_ns(rank, asked_ns):
            continue  # it raised what the end of another one gave it
        if first_ns is None or ending.at_ns <= first_ns:
            endings[rank] = replace(ending, part=_part(None, ending.reason, ending.error))
    return endings


def _pass_on(endings: dict[int, RankEnding]) -> dict[int, RankEnding]:
    """Where a rank has passed its error on to others, which raise it at one time, that rank is the cause."""
    reasons = {ending.reason for ending in endings.values()} - {""}
    failed = {words for reason in reasons if (words := words_of_failed(reason)) in reasons}
    for rank, ending in endings.items():
        if ending.reason in failed:
            endings[rank] = replace(ending, part=EndRole.CAUSE)
        elif words_of_failed(ending.reason) in failed:
            endings[rank] = replace(ending, part=EndRole.VICTIM)
    return endings


def _how(log: RankLog, reason: str) -> str:
    if reason.startswith("SystemExit") and log.end is not None:
        text = reason.partition(": ")[2]
        return f"{log.end.how}: {text}" if text else log.end.how
    if log.end is not None and log.end.cause in ("signal", "oom") and not log.end.was_asked:
        return log.end.how
    if reason:
        return f"raised {reason}"
    return log.end.how if log.end is not None else "raised an exception"


def _how_well(log: RankLog) -> str:
    if log.exit is Exit.LEFT and log.end is None:
        return "destroyed its groups"
    return "returned" if log.exit is Exit.RETURNED else "exited with code 0"
