"""Reads where ranks were when they failed, with the callers: from tracebacks, and from dumps of crashes.

    <run>/attempt_0/rank00003.crash               what faulthandler printed
    <run>/logs/attempt_0/<local rank>/error.json  what the rank raised, with its traceback
    the end of its stderr                         where that was kept in a file

A record has the innermost line of an exception alone, and nothing of a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from distdbg.diagnose.load.kept_output import error_files
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.wording import say_site, short_site
from distdbg.record.crash_file import read_crash
from distdbg.record.error_file import ErrorFacts, read_error_file
from distdbg.record.format import Exit
from distdbg.record.observations import dead_child_in
from distdbg.record.printed_stack import own_frame, read_stack

_CRASHES: Final = ("signal",)
_STDERR: Final = "stderr.log"


def add_left_stacks(session: Session, folders: Sequence[Path]) -> None:
    """Fill `RankLog.left_stack` of those that raised or crashed."""
    raised = {rank for rank, log in session.ranks.items() if log.exit is Exit.RAISED}
    silent = {rank for rank, log in session.ranks.items() if _is_silent(log)}
    for path in error_files(folders, session.attempt) if raised or silent else ():
        facts = read_error_file(path)
        if facts is None or facts.rank is None or facts.rank not in raised | silent:
            continue
        log = session.ranks[facts.rank]
        if facts.rank in silent:
            _take_over(facts, log)
        if log.exit is Exit.RAISED and _is_of(facts, log):
            log.left_stack, log.left_values = read_stack(facts.traceback), facts.values
            log.exit_notes, log.exit_hint = facts.notes, log.exit_hint or facts.hint or ""
    for rank, log in session.ranks.items():
        if log.end is None or log.end.cause not in _CRASHES or log.exit is Exit.RAISED:
            continue
        texts = [read_crash(folder, rank) for folder in folders]
        if log.activity is not None and dead_child_in(log.activity.why):
            # The dump is of that process, which has the stderr of its parent.
            log.child_stack = read_stack(next(filter(None, texts), ""))
            continue
        printed = [
            one.text for one in session.lines if one.rank == rank and one.source.startswith(_STDERR)
        ]
        log.left_stack = read_stack(next(filter(None, texts), "\n".join(printed)))


def _is_silent(log: RankLog) -> bool:
    """Whether it failed by itself and has no record that says why: before it had a group, say."""
    return log.exit is None and log.end is not None and log.end.cause == "exited" and log.has_failed


def _take_over(facts: ErrorFacts, log: RankLog) -> None:
    """What the rank said to its launcher, as if it stood in a record."""
    assert log.end is not None
    if facts.pid not in (None, log.end.pid):
        return  # of another start
    own = own_frame(read_stack(facts.traceback))
    log.exit, log.exit_what = Exit.RAISED, facts.first_line
    log.exit_where = "" if own is None else str(own)
    log.exit_hint = facts.hint or ""


def _is_of(facts: ErrorFacts, log: RankLog) -> bool:
    """Whether the traceback ends where the record says that the rank raised."""
    lines = [say_site(frame).partition(" (")[0] for frame in read_stack(facts.traceback)]
    where = short_site(log.exit_where).partition(" (")[0]
    return not where or where in lines
