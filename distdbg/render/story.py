"""What a rank did last: ops, marks and how it ended, one line each with its time. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, OpRef
from distdbg.diagnose.session import Activity, Session
from distdbg.record.entries import MarkEntry, SpanBegin, SpanEnd
from distdbg.record.format import Exit, Status
from distdbg.record.observations import IN_LOCK, waits_for_lock
from distdbg.record.rank_state import RankState
from distdbg.render.words import seconds_text, site_text

_EXITS: Final = {
    Exit.RETURNED: "its program returned",
    Exit.LEFT: "left its groups",
    Exit.RAISED: "raised",
}
_BY_SYS_EXIT: Final = "ended by sys.exit"

_ABORTED: Final = "JobAborted"
#: How far back a loop is followed.
_MAX_OPS: Final = 10_000
#: So many letters of two errors that are equal make them one.
_ENOUGH: Final = 60
_SAID_BY_OPS: Final = frozenset((RankState.RUNNING, RankState.WAITING))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryStep:
    """One thing that happened; `at_ns` on the session's clock, NEVER when that is not known."""

    at_ns: int
    text: str
    site: str = ""
    rank: int = -1
    count: int = 1
    """How many alike came one after the other; the text is that of the last."""


def story_of(session: Session, rank: int, most: int = 6) -> list[StoryStep]:
    """The last steps in the order of time, ops that are alike as one."""
    log = session.ranks.get(rank)
    if log is None:
        return []
    steps = _ops(session, rank, most)
    for note in log.notes[-2 * most :]:
        word = {MarkEntry: "mark", SpanBegin: "enters", SpanEnd: "leaves"}.get(type(note))
        if word is not None:
            name = getattr(note, "name", None) or "?"
            value = getattr(note, "value", None)
            text = f"{word} {name}" + (f" {value:g}" if value is not None else "")
            at_ns = session.time_ns(rank, note.issued_ns)
            steps.append(StoryStep(at_ns=at_ns, text=text, site=site_text(note.site)))
    # What a rank does on its way out, after it raised, is no news.
    is_out = log.exit is not None and log.activity is not None
    is_out = is_out and log.activity is not None and log.activity.since_ns >= log.exit_ns
    if log.activity is not None and log.activity.state not in _SAID_BY_OPS and not is_out:
        at_ns = session.time_ns(rank, log.activity.since_ns)
        why = log.activity.why
        if waits_for_lock(log.activity.state, why):
            why = why.removeprefix(IN_LOCK)  # said already
        elif why:
            why = f": {why}"
        text = f"{state_text(log.activity)}{why}"
        steps.append(StoryStep(at_ns=at_ns, text=text, site=log.activity.site))
    if log.exit is not None:
        # The words of an abort are those of the verdict.
        is_aborted = log.exit_type == _ABORTED
        what = f" {_ABORTED if is_aborted else log.exit_what}" if log.exit_what else ""
        at_ns = session.time_ns(rank, log.exit_ns)
        text = _EXITS[log.exit] + what
        if log.exit is Exit.RETURNED and log.end is not None and log.end.exit_code:
            text = _BY_SYS_EXIT  # nothing was raised that Python prints, and the code is not 0
        steps.append(StoryStep(at_ns=at_ns, text=text, site=log.exit_where))
    if log.end is not None:
        steps.append(StoryStep(at_ns=session.time_ns(rank, log.end.ended_ns), text=log.end.how))
    steps.sort(key=lambda step: step.at_ns)
    return [replace(step, rank=rank) for step in steps[-most:]]


def ago_text(session: Session, step: StoryStep) -> str:
    """'3.1 s ago', '3.1 s before', 'at its end'; '' when that is not known.

    Of a rank that is gone the zero is its own end, as in the launcher's report.
    """
    end = session.ranks[step.rank].end if step.rank in session.ranks else None
    if end is not None and not session.is_live and step.at_ns != NEVER:
        before = session.time_ns(step.rank, end.ended_ns) - step.at_ns
        return f"{seconds_text(before)} before" if before > 0 else "at its end"
    if NEVER in (step.at_ns, session.now_ns) or step.at_ns > session.now_ns:
        return ""
    ago = session.now_ns - step.at_ns
    return f"{seconds_text(ago)} ago" if ago >= 10**6 else "at the end"


def _ops(session: Session, rank: int, most: int) -> list[StoryStep]:
    """From the last backwards; a loop of equal ops is one step."""
    ops = session.ranks[rank].ops
    steps: list[StoryStep] = []
    for at in range(len(ops) - 1, max(-1, len(ops) - 1 - _MAX_OPS), -1):
        op = OpRef(rank, at)
        same = steps and steps[-1].count and _is_like(session, rank, at, at + 1)
        if same:
            last = steps[-1]
            steps[-1] = StoryStep(
                at_ns=last.at_ns, text=last.text, site=last.site, count=last.count + 1
            )
            continue
        if len(steps) == most:
            break
        frame = session.site_of(op)
        text = f"{session.name_of(op)} {_outcome(session, op)}"
        at_ns = session.time_ns(rank, ops.issued_ns[at])
        steps.append(StoryStep(at_ns=at_ns, text=text, site=site_text(frame)))
    return steps


def _is_like(session: Session, rank: int, at: int, then: int) -> bool:
    ops = session.ranks[rank].ops
    return bool(
        ops.status[at] == ops.status[then] == Status.OK
        and ops.kind[at] == ops.kind[then]
        and ops.group[at] == ops.group[then]
        and ops.stack[at] == ops.stack[then]
        and ops.peer[at] == ops.peer[then]
    )


def _outcome(session: Session, op: OpRef) -> str:
    """'took 3.1 ms', 'has not ended, 12.0 s so far', 'failed: timeout'."""
    ops = session.ranks[op.rank].ops
    status, ended = ops.status[op.at], ops.ended_ns[op.at]
    if status == IN_FLIGHT:
        since = session.now_ns - session.time_ns(op.rank, ops.issued_ns[op.at])
        return "has not ended" + (f", {seconds_text(since)} so far" if since > 0 else "")
    time = "" if ended == NEVER else seconds_text(ended - ops.issued_ns[op.at])
    if status == Status.OK:  # the age is that of its call
        return f"took {time}" if time else "ended"
    took = f" after {time}" if time else ""
    if status == Status.ABORTED:
        return f"was aborted{took}"
    error = _error(ops.errors.get(op.at, ""))
    if error and error[:_ENOUGH] in session.ranks[op.rank].exit_what:
        return f"failed{took}"  # the rank ended by it, and the line of its end has the words
    return f"failed{took}: {error or status_text(status)}"


def state_text(seen: Activity) -> str:
    """'asleep', 'holds the GIL', 'waits for a lock'."""
    return "waits for a lock" if waits_for_lock(seen.state, seen.why) else str(seen.state)


def status_text(status: int) -> str:
    """'ok', 'peer lost', 'in flight'."""
    if status == IN_FLIGHT:
        return "in flight"
    try:
        return Status(status).name.lower().replace("_", " ")
    except ValueError:
        return f"status {status}"


def _error(text: str) -> str:
    """The first line of what an error says; it may be JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        text = str(found.get("what", ""))
    return text.strip().split("\n")[0] if text else ""
