"""A job that a person ended: an abort by hand, a debugger that was quit, Ctrl-C, SIGTERM from a scheduler, a
launcher told to stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distdbg.diagnose.endings import Ending, Part, endings_of
from distdbg.diagnose.failures import Failure, failures_of
from distdbg.diagnose.finding import Edge, Evidence, Finding, Kind, Severity
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import fit, known_ns, say_ranks

_ABORTED = "the job was aborted"
_BY_AGENT = f"{_ABORTED} by the agent"


def find(
    session: Session, matched: Matched, waits: Mapping[int, tuple[Edge, ...]]
) -> list[Finding]:
    failures = failures_of(session)
    endings = endings_of(session, failures)
    aborts = [e for errors in failures.values() for e in errors if is_by_hand(e)]
    if aborts:
        return [_of_aborts(aborts)]
    if is_stopped_from_outside(endings):
        return [_of_ends([e for e in endings.values() if e.part is Part.INTERRUPTED])]
    if is_all_asked(endings):
        return [_of_ends([e for e in endings.values() if e.part is Part.ENDED])]
    return []


def is_stopped_from_outside(endings: Mapping[int, Ending]) -> bool:
    """Whether a signal that people and schedulers send came before anything else went wrong.

    SIGTERM at one rank of many is no stop of the job: somebody has killed that rank.
    """
    struck = [e for e in endings.values() if e.part is Part.INTERRUPTED]
    causes = [e.at_ns for e in endings.values() if e.part is Part.CAUSE and e.at_ns != NEVER]
    if not struck or min((e.at_ns for e in struck), default=0) > min(causes, default=2**63):
        return False
    others = [e for e in endings.values() if e.part not in (Part.INTERRUPTED, Part.FINE)]
    is_keyboard = any("KeyboardInterrupt" in e.reason or "SIGINT" in e.how for e in struck)
    return is_keyboard or len(struck) > 1 or not others


def is_all_asked(endings: Mapping[int, Ending]) -> bool:
    """Whether the launcher ended ranks and none had failed: it was told to."""
    parts = {e.part for e in endings.values()}
    return Part.ENDED in parts and parts <= {Part.ENDED, Part.FINE}


def is_by_hand(error: Failure) -> bool:
    """Whether a person aborted the job, and no verdict, or quit a debugger."""
    if error.type == "DebuggerQuit":
        return True
    return error.type == "JobAborted" and not error.named and not error.what.startswith(_BY_AGENT)


def _of_aborts(aborts: Sequence[Failure]) -> Finding:
    first = min(aborts, key=lambda e: (e.at_ns, e.rank))
    what = first.what or _ABORTED
    return Finding(
        kind=Kind.STOPPED,
        severity=Severity.ERROR,
        what=fit(what),
        victims=tuple(sorted({e.rank for e in aborts})),
        at_ns=known_ns(first.at_ns),
        evidence=tuple(
            Evidence(
                text=f"rank {e.rank}: {e.what or _ABORTED}",
                rank=e.rank,
                op=e.op,
                at_ns=known_ns(e.at_ns),
            )
            for e in aborts[:4]
        ),
        advice="nothing to repair: somebody ended it on purpose",
    )


def _of_ends(ends: Sequence[Ending]) -> Finding:
    first = min(ends, key=lambda e: (e.at_ns, e.rank))
    ranks = tuple(sorted(e.rank for e in ends))
    if first.part is Part.ENDED:
        what = f"the launcher was told to end the job: it ended {say_ranks(ranks)}"
    elif "KeyboardInterrupt" in first.reason:
        what = f"the job was interrupted from the keyboard (SIGINT on {say_ranks(ranks)})"
    else:
        what = f"the job was ended from outside: {say_ranks(ranks)} {_how(first, ranks)}"
    return Finding(
        kind=Kind.STOPPED,
        severity=Severity.ERROR,
        what=fit(what),
        victims=ranks,
        at_ns=known_ns(first.at_ns),
        evidence=tuple(
            Evidence(text=f"rank {e.rank} {e.how}", rank=e.rank, at_ns=known_ns(e.at_ns))
            for e in ends[:4]
        ),
        advice="if nobody of yours did, ask the scheduler: a time limit or a preemption ends jobs so",
    )


def _how(first: Ending, ranks: Sequence[int]) -> str:
    return first.how.replace("was killed", "were killed", 1) if len(ranks) > 1 else first.how
