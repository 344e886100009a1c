"""Leaks: ops that nobody waited for when their rank left, and groups that are never destroyed.

    leaked work     an asynchronous op in flight on a rank that has returned or destroyed its groups.
                    If the rank was killed or raised it is a consequence: see `dead`.
    leaked group    groups made again and again by one line, between ops, of which most are never destroyed:
                    WARNING. Groups other than the default one that were alive at a normal end: NOTE;
                    for NCCL also the default one, as torch warns of it.

Whether the program waited for an op that has ended is not in the record of the op: the rank records it
(`latent`), and such an op is not reported twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from distdbg.diagnose.find.latent import reported_sites
from distdbg.diagnose.find.phrases import at_site, called, few
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import IN_FLIGHT, OpRef
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.wording import say_ranks, site_of
from distdbg.record.format import Aside, Exit, Flag

_LEAST_MADE: Final = 16
_LEAST_ALIVE: Final = 0.5
#: How many of the makings have to have ops of the program between them.
_LEAST_APART: Final = 0.5
_MAX_NAMES: Final = 8
#: Names of the default group, here and in what other tools write.
_DEFAULT_NAMES: Final = ("0", "default", "default_pg")


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """Ops and groups that were left behind."""
    return [*_leaked_work(session), *_growing(session), *_left_open(session)]


def _leaked_work(session: Session) -> list[Finding]:
    reported = reported_sites(session)
    left: list[OpRef] = []
    for rank, log in session.ranks.items():
        if log.exit in (Exit.RETURNED, Exit.LEFT) and IN_FLIGHT in log.ops.status:
            left += [
                OpRef(rank, at)
                for at in log.ops.in_flight()
                if log.ops.flags[at] & Flag.ASYNC
                and (rank, site_of(session, OpRef(rank, at))) not in reported
            ]
    if not left:
        return []
    ranks = tuple(sorted({op.rank for op in left}))
    first = left[0]
    ops = session.ranks[first.rank].ops
    group = session.group_of(first)
    count = f"{len(left)} ops" if len(left) > 1 else "an op"
    return [
        Finding(
            kind=FindingKind.LEAKED_WORK,
            severity=Severity.WARNING,
            what=f"{say_ranks(ranks)} ended with {count} in flight: {session.name_of(first)}",
            ranks=ranks,
            group=group.label if group else "",
            seq=ops.seq[first.at],
            at_ns=session.time_ns(first.rank, ops.issued_ns[first.at]),
            evidence=few(
                [
                    called(
                        session,
                        op,
                        f"rank {op.rank} began {session.name_of(op)}{at_site(session, op)}, and left "
                        f"before it ended",
                    )
                    for op in left
                ]
            ),
            advice="call wait() on the Work of each asynchronous op before the program ends",
            numbers={"ops": float(len(left)), "ranks": float(len(ranks))},
        )
    ]


def _growing(session: Session) -> list[Finding]:
    """Lines that make a group each time they are passed, which nobody destroys."""
    found: dict[str, list[tuple[OpRef, int, int]]] = defaultdict(list)
    for log in session.ranks.values():
        # One look at the kinds: few ranks have made so many.
        if log.ops.kind.count(Aside.NEW_GROUP) < _LEAST_MADE:
            continue
        alive = sum(1 for far in log.progress.values() if far.closed_ns is None)
        for op, made in _makers(log):
            if alive >= _LEAST_ALIVE * made:
                found[at_site(session, op)].append((op, made, alive))
    return [_say_growing(session, site, makers) for site, makers in found.items()]


def _makers(log: RankLog) -> list[tuple[OpRef, int]]:
    """By stack: the last making, and how many there were, where other ops lie between them."""
    ops = log.ops
    made: dict[int, list[int]] = defaultdict(list)
    apart: dict[int, int] = defaultdict(int)
    at = -1
    while (at := _next(ops.kind.tobytes(), Aside.NEW_GROUP, at)) >= 0:
        if not ops.flags[at] & Flag.ASIDE:
            continue
        stack = ops.stack[at]
        if made[stack]:
            between = ops.flags[made[stack][-1] + 1 : at]
            apart[stack] += any(not flags & Flag.ASIDE for flags in between)
        made[stack].append(at)
    return [
        (OpRef(log.rank, indexes[-1]), len(indexes))
        for stack, indexes in made.items()
        if len(indexes) >= _LEAST_MADE and apart[stack] >= _LEAST_APART * len(indexes)
    ]


def _next(data: bytes, value: int, after: int) -> int:
    return data.find(value, after + 1)


def _say_growing(session: Session, site: str, makers: Sequence[tuple[OpRef, int, int]]) -> Finding:
    ranks = tuple(sorted(op.rank for op, _, _ in makers))
    op, made, alive = max(makers, key=lambda each: each[2])
    return Finding(
        kind=FindingKind.LEAKED_GROUP,
        severity=Severity.WARNING,
        what=(
            f"{say_ranks(ranks)} made {made} groups{site or ' on one line'} and destroyed few: "
            f"{alive} still exist"
        ),
        ranks=ranks,
        at_ns=session.time_ns(op.rank, session.ranks[op.rank].ops.issued_ns[op.at]),
        evidence=(called(session, op, f"rank {op.rank} made the last of them{site}"),),
        advice="make the group once, before the loop, or call destroy_process_group on each",
        numbers={"made": float(made), "alive": float(alive)},
    )


def _left_open(session: Session) -> list[Finding]:
    left: dict[int, list[int]] = defaultdict(list)
    for rank, log in session.ranks.items():
        if log.exit is not Exit.RETURNED:
            continue
        for group, far in log.progress.items():
            if far.closed_ns is None and not _may_stay(session, group):
                left[group].append(rank)
    if not left:
        return []
    labels = [session.groups[group].label for group in left]
    names = ", ".join(f"'{label}'" for label in labels[:_MAX_NAMES])
    more = f" and {len(labels) - _MAX_NAMES} more" if len(labels) > _MAX_NAMES else ""
    ranks = tuple(sorted({rank for mine in left.values() for rank in mine}))
    which = f"group {names}" if len(labels) == 1 else f"{len(labels)} groups"
    return [
        Finding(
            kind=FindingKind.LEAKED_GROUP,
            severity=Severity.NOTE,
            what=f"{say_ranks(ranks)} ended without destroying {which}",
            ranks=ranks,
            group=labels[0],
            evidence=(Evidence(text=f"not destroyed: {names}{more}"),),
            advice="call destroy_process_group() at the end of the program",
            numbers={"groups": float(len(labels))},
        )
    ]


def _may_stay(session: Session, group: int) -> bool:
    """The default group; most programs end without a word about it."""
    info = session.groups[group]
    is_default = info.label == "world" or info.name in _DEFAULT_NAMES
    is_whole = not info.ranks or len(info.ranks) == (session.world_size or len(info.ranks))
    return is_default and is_whole and "nccl" not in info.backend.lower()
