"""What stopped a job from outside, and when. Pure.

    stop = stop_of(session, failures, endings)
    stop.words           'the job was stopped by SIGTERM'

A person, a scheduler, torchrun or a notice of pre-emption ends a job by a signal to its launcher or to all of
its ranks, or by an abort. That is a reaction or a limit, never the cause of a hang.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.endings import Endings, EndRole, RankEnding
from distdbg.diagnose.failures import Failure, Failures
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import RankLog, Session
from distdbg.record.ends import signal_name
from distdbg.record.format import Status

ABORTED: Final = "the job was aborted"
_BY_AGENT: Final = f"{ABORTED} by the agent"
#: In the error of an op that was broken so.
_WAS_INTERRUPTED: Final = " was interrupted in "
#: Ends by one signal that are closer than this are one: a kill of a whole job takes its time.
ONE_BLOW_NS: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideStop:
    """The end of a job from outside."""

    words: str
    at_ns: int
    """On the session's clock; NEVER."""
    ranks: tuple[int, ...]


def stop_of(session: Session, failures: Failures, endings: Endings) -> OutsideStop | None:
    """What ended the job; None: nothing from outside did."""
    # A program that ends by os._exit leaves no end either, but it is in no op.
    if session.was_killed and any(_is_in_op(log) for log in session.ranks.values()):
        return OutsideStop(words="the job was killed", at_ns=session.now_ns, ranks=())
    aborts = [e for errors in failures.values() for e in errors if is_by_hand(e)]
    if aborts:
        first = min(aborts, key=lambda e: (e.at_ns, e.rank))
        ranks = tuple(sorted({e.rank for e in aborts}))
        return OutsideStop(words=first.what or ABORTED, at_ns=first.at_ns, ranks=ranks)
    if is_stopped_from_outside(endings):
        part = EndRole.INTERRUPTED
    elif is_all_asked(endings):
        part = EndRole.ENDED
    else:
        return None
    ends = [e for e in endings.values() if e.part is part]
    times = [e.at_ns for e in ends if e.at_ns != NEVER]
    times += [*_interrupted_ops(session), *_broken_by_it(failures)] if times else []
    return OutsideStop(
        words=f"the job was stopped by {_by(session.stopped_by, ends)}",
        at_ns=min(times, default=NEVER),
        ranks=tuple(sorted(e.rank for e in ends)),
    )


def _is_in_op(log: RankLog) -> bool:
    return next(log.ops.in_flight(), None) is not None


def is_stopped_from_outside(endings: Endings) -> bool:
    """Whether a signal that people and schedulers send came before anything else went wrong.

    SIGTERM at one rank of many is no stop of the job: somebody has killed that rank.
    """
    struck = [e for e in endings.values() if e.part is EndRole.INTERRUPTED]
    causes = [e.at_ns for e in endings.values() if e.part is EndRole.CAUSE and e.at_ns != NEVER]
    if not struck or min((e.at_ns for e in struck), default=0) > min(causes, default=2**63):
        return False
    others = [e for e in endings.values() if e.part not in (EndRole.INTERRUPTED, EndRole.FINE)]
    is_keyboard = any("KeyboardInterrupt" in e.reason or "SIGINT" in e.how for e in struck)
    return is_keyboard or len(struck) > 1 or not others


def is_all_asked(endings: Endings) -> bool:
    """Whether the launcher ended ranks and none had failed: it was asked to."""
    parts = {e.part for e in endings.values()}
    return EndRole.ENDED in parts and parts <= {EndRole.ENDED, EndRole.FINE}


def is_by_hand(error: Failure) -> bool:
    """Whether a person aborted the job, and no verdict, or quit a debugger."""
    if error.type == "DebuggerQuit":
        return True
    return error.type == "JobAborted" and not error.named and not error.what.startswith(_BY_AGENT)


def killed_at_once(session: Session, endings: Endings) -> int | None:
    """When all ranks that ran were killed by SIGKILL in one blow: Slurm's kill; None: they were not."""
    running = [e for e in endings.values() if e.part is not EndRole.FINE]
    if len(running) < 2 or len(endings) < len(session.ranks):
        return None
    for one in running:
        is_killed = one.end is not None and one.end.cause == "signal" and not one.reason
        if not is_killed or one.end is None or one.end.signal != signal.SIGKILL:
            return None
        if one.at_ns == NEVER:
            return None
    first_ns = min(e.at_ns for e in running)
    slack_ns = max((log.clock_error_ns or 0 for log in session.ranks.values()), default=0)
    is_one_blow = max(e.at_ns for e in running) - first_ns <= ONE_BLOW_NS + 2 * slack_ns
    return first_ns if is_one_blow else None


def _interrupted_ops(session: Session) -> list[int]:
    """When ops ended because their thread was interrupted: a moment before the rank did."""
    found = []
    for rank, log in session.ranks.items():
        at = log.ops.status.tobytes().rfind(bytes([Status.INTERRUPTED]))
        if at >= 0 and log.ops.ended_ns[at] != NEVER and at == len(log.ops) - 1:
            found.append(session.time_ns(rank, log.ops.ended_ns[at]))
    return found


def _broken_by_it(failures: Failures) -> list[int]:
    """When ops failed because another rank was interrupted in them: its own end of the op may be later."""
    errors = (one for each in failures.values() for one in each)
    return [e.at_ns for e in errors if _WAS_INTERRUPTED in e.what and e.at_ns != NEVER]


def _by(user: str, ends: list[RankEnding]) -> str:
    if user:
        return f"{user} (distdbg stop)"
    if any("KeyboardInterrupt" in one.reason for one in ends):
        return "Ctrl-C (SIGINT)"
    reported = {one.end.asked_by for one in ends if one.end is not None} - {None}
    if len(reported) == 1 and (number := reported.pop()) is not None:
        return _name(number)  # a program may end by a code of its own
    numbers = [one.end.signal for one in ends if one.end is not None]
    known = [number for number in numbers if number is not None]
    # A process that the first signal does not end is killed.
    polite = [number for number in known if number != signal.SIGKILL] or known
    if not polite:
        return "its launcher"
    number = max(set(polite), key=polite.count)
    return _name(number)


def _name(number: int) -> str:
    return "Ctrl-C (SIGINT)" if number == signal.SIGINT else signal_name(number)
