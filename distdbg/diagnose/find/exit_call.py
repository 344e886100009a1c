"""Tells how a program itself ended the process of a rank, as the rank wrote before it did. Pure."""

from __future__ import annotations

from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import RankLog, RecordedProblem, Session
from distdbg.diagnose.wording import known_ns, short_site
from distdbg.record.known_marks import EXIT_CALL, SYS_EXIT


def exit_call(session: Session, rank: int) -> Evidence | None:
    """'rank 0: thread 'beat' called os._exit(75) at beat.py:33 (run); the main thread was at a.py:6 (f)'."""
    last = _last(session, rank)
    if last is None:
        return None
    where = [f" at {short_site(one)}" for one in last.details[:1]]
    meanwhile = [f"; the main thread was at {short_site(one)}" for one in last.details[1:2] if one]
    how = [f" {last.how}"] if last.how else []
    return Evidence(
        text=f"rank {rank}: {last.what}{''.join(where + how + meanwhile)}",
        rank=rank,
        at_ns=known_ns(session.time_ns(rank, last.at_ns)),
    )


def exit_site(session: Session, rank: int) -> str:
    """'beat.py:33'; '' where the program did not end the process itself."""
    last = _last(session, rank)
    return short_site(last.details[0]).partition(" ")[0] if last and last.details else ""


def _last(session: Session, rank: int) -> RecordedProblem | None:
    log = session.ranks.get(rank)
    if log is None:
        return None
    calls = [one for one in log.found if one.type == EXIT_CALL]
    return calls[-1] if calls and not _was_caught(log, calls[-1]) else None


def _was_caught(log: RankLog, call: RecordedProblem) -> bool:
    """Whether the program went on after a sys.exit, or may have: it only raises SystemExit."""
    if not call.what.startswith(SYS_EXIT):
        return False
    called_op_later = len(log.ops) and call.at_ns != NEVER and log.ops.issued_ns[-1] > call.at_ns
    return log.exit is None or bool(called_op_later)
