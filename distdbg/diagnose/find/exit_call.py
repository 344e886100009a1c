"""Tells how a program itself ended the process of a rank, as the rank wrote before it did. Pure."""

from __future__ import annotations

from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.session import RecordedProblem, Session
from distdbg.diagnose.wording import known_ns, short_site
from distdbg.record.known_marks import EXIT_CALL


def exit_call(session: Session, rank: int) -> Evidence | None:
    """'rank 0: thread 'beat' called os._exit(75) at beat.py:33 (run); the main thread was at a.py:6 (f)'."""
    last = _last(session, rank)
    if last is None:
        return None
    where = [f" at {short_site(one)}" for one in last.details[:1]]
    meanwhile = [f"; the main thread was at {short_site(one)}" for one in last.details[1:2] if one]
    return Evidence(
        text=f"rank {rank}: {last.what}{''.join(where + meanwhile)}",
        rank=rank,
        at_ns=known_ns(session.time_ns(rank, last.at_ns)),
    )


def exit_site(session: Session, rank: int) -> str:
    """'beat.py:33'; '' where the program did not end the process itself."""
    last = _last(session, rank)
    return short_site(last.details[0]).partition(" ")[0] if last and last.details else ""


def _last(session: Session, rank: int) -> RecordedProblem | None:
    log = session.ranks.get(rank)
    calls = [one for one in log.found if one.type == EXIT_CALL] if log is not None else []
    return calls[-1] if calls else None
