"""Where each rank is: the op that it waits in, or its last one. Ranks that are alike are one line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.finding import Finding, FindingKind
from distdbg.diagnose.ops import NEVER, NONE, OpRef
from distdbg.diagnose.session import RankLog, Session
from distdbg.record.format import Flag, Status
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.words import seconds_text, site_text

#: How an op ends that waited in vain.
_GAVE_UP: Final = frozenset((Status.TIMEOUT, Status.PEER_LOST, Status.NETWORK, Status.ABORTED))

#: Kinds of findings that are not about one moment: where ranks are now tells nothing of them.
_TIMELESS: Final = frozenset(
    (
        FindingKind.STRAGGLER,
        FindingKind.SLOW_LINK,
        FindingKind.SLOW_HOST,
        FindingKind.ORDER_INVERSION,
        FindingKind.LEAKED_WORK,
        FindingKind.LEAKED_GROUP,
        FindingKind.BUFFER_RACE,
        FindingKind.MESSAGE_RACE,
        FindingKind.DIVERGED,
        FindingKind.NAN_SOURCE,
        FindingKind.SUSPICION,
        FindingKind.RECORDING_LOST,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentOp:
    """The op that tells most about where a rank is."""

    op: OpRef
    is_in: bool
    """Whether it has not ended."""
    since_ns: int
    """When it was issued, or ended; on the session's clock."""
    stack: int
    """The stack of the thread that waits: index into `Session.stacks`."""
    verb: str
    """'in', 'gave up in', 'last in' where the job was ended, 'after'."""


def has_place(finding: Finding) -> bool:
    """Whether it helps to see where ranks are."""
    return finding.kind not in _TIMELESS


def groups_of_deadlock(session: Session, root: Finding) -> list[tuple[str, Sequence[int]]]:
    """Label and members of the groups that its ranks wait on, where they are several."""
    groups = {
        session.ranks[edge.op.rank].ops.group[edge.op.at]
        for edge in root.edges
        if edge.op is not None and edge.op.rank in session.ranks
    }
    # The group that a rank should have met others in may be one that only victims wait in.
    groups |= {
        session.ranks[rank].ops.group[-1]
        for fact in root.evidence
        for rank in fact.ranks
        if len(groups) > 1 and rank in session.ranks and len(session.ranks[rank].ops)
    }
    groups.discard(NONE)
    several = sorted(groups) if len(groups) > 1 else []
    return [(session.groups[at].label, session.members(at)) for at in several]


def place_of(session: Session, rank: int) -> CurrentOp | None:
    """None for a rank that called nothing, or of which nothing is known."""
    log = session.ranks.get(rank)
    if log is None or not len(log.ops):
        return None
    found = _waited(log)
    if found is None:
        at = len(log.ops) - 1
        ended = log.ops.ended_ns[at]
        since = session.time_ns(rank, ended)
        verb = "after"
        if gave_up(log) is not None:
            verb = "last in" if log.ops.status[at] == Status.ABORTED else "gave up in"
        stack = log.ops.stack[at]
        return CurrentOp(op=OpRef(rank, at), is_in=False, since_ns=since, stack=stack, verb=verb)
    at, since, stack = found
    since = session.time_ns(rank, since)
    stack = stack or log.ops.stack[at]
    return CurrentOp(op=OpRef(rank, at), is_in=True, since_ns=since, stack=stack, verb="in")


def gave_up(log: RankLog) -> int | None:
    """The last op, where it failed because others did not come or went away."""
    at = len(log.ops) - 1
    return at if at >= 0 and log.ops.status[at] in _GAVE_UP else None


def _waited(log: RankLog) -> tuple[int, int, int] | None:
    """Index, since when and stack: a call that blocks, before a `Work.wait`, before what only runs."""
    ops = log.ops
    in_flight = list(ops.in_flight())
    for at in in_flight:
        if not ops.flags[at] & Flag.ASYNC:
            return at, ops.issued_ns[at], 0
    by_number = {ops.number[at]: at for at in in_flight}
    for wait in log.work_waits:
        if wait.number in by_number:
            return by_number[wait.number], wait.since_ns, wait.stack
    return (in_flight[0], ops.issued_ns[in_flight[0]], 0) if in_flight else None


def where_text(session: Session, rank: int) -> str:
    """'in all_gather #7 on group 'dp' at train.py:88 (step)', 'after ...'; '' when nothing is known."""
    place = place_of(session, rank)
    if place is None:
        activity = session.ranks[rank].activity if rank in session.ranks else None
        return f"{activity.state} at {activity.site}" if activity and activity.site else ""
    site = site_text(first_frame(session, place.stack))
    at = f" at {site}" if site else ""
    name = session.name_of(place.op)
    return f"{place.verb} {name}{at}"


def first_frame(session: Session, stack: int) -> RecordedFrame | None:
    """Where the program called; None where no stack is known."""
    frames = session.stacks[stack]
    return frames[0] if frames else None


def fold(session: Session, ranks: Iterable[int]) -> list[tuple[str, tuple[int, ...]]]:
    """`where_text` of these ranks, each once with its ranks: the one of most ranks first."""
    found: dict[str, list[int]] = {}
    for rank in sorted(set(ranks)):
        found.setdefault(where_text(session, rank), []).append(rank)
    folded = [(text, tuple(members)) for text, members in found.items() if text]
    return sorted(folded, key=lambda one: (-len(one[1]), one[1]))


def waited_text(session: Session, ranks: Iterable[int]) -> str:
    """'3.2 s': how long the first of these ranks has been where it is; '' when nobody knows."""
    places = [place for rank in ranks if (place := place_of(session, rank)) and place.is_in]
    times = [place.since_ns for place in places]
    if not times or NEVER in times or session.now_ns < min(times):
        return ""
    return seconds_text(session.now_ns - min(times))
