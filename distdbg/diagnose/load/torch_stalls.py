"""Ops in torch's dumps that all ranks have called and that have not ended.

No rank is missing and no call differs. Torch's dumps have one more fact than other sessions: whether the
device of a rank has begun the op. A rank whose device has not is not the cause: its queue may be blocked by
another op, which is then named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.diagnose.ops import IN_FLIGHT, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks
from distdbg.record.format import Flag

_MAX_SAID: Final = 8


def find_stalls(session: Session, started: Mapping[int, set[int]]) -> list[Finding]:
    """One finding per group whose oldest unfinished op all members have called."""
    oldest: dict[int, tuple[int, dict[int, OpRef]]] = {}
    for rank, log in session.ranks.items():
        ops = log.ops
        seen = set()
        for at in ops.in_flight():
            group = ops.group[at]
            if group in seen or ops.flags[at] & Flag.MESSAGE:
                continue
            seen.add(group)
            seq, found = oldest.get(group, (ops.seq[at], {}))
            if ops.seq[at] < seq:
                seq, found = ops.seq[at], {}
            if ops.seq[at] == seq:
                found[rank] = OpRef(rank, at)
            oldest[group] = seq, found
    findings = []
    for group, (seq, waiting) in sorted(oldest.items()):
        finding = _stall(session, group, seq, waiting, started)
        if finding is not None:
            findings.append(finding)
    return findings


def _stall(
    session: Session,
    group: int,
    seq: int,
    waiting: dict[int, OpRef],
    started: Mapping[int, set[int]],
) -> Finding | None:
    members = session.members(group)
    logs = [session.ranks.get(rank) for rank in members]
    if any(log is None or group not in log.progress for log in logs):
        return None
    if any(log.progress[group].issued_seq < seq for log in logs if log is not None):
        return None  # somebody has not come: that explains it
    prints = {session.ranks[op.rank].ops.fingerprint[op.at] for op in waiting.values()}
    if len(prints) > 1:
        return None  # they differ: so does that
    first = waiting[min(waiting)]
    name = session.name_of(first)
    begun = sorted(rank for rank, op in waiting.items() if op.at in started.get(rank, ()))
    queued = sorted(waiting.keys() - set(begun))
    evidence = [
        _evidence(session, waiting[rank], rank in begun) for rank in sorted(waiting)[:_MAX_SAID]
    ]
    if begun and queued:
        what = (
            f"{name}: the devices of {say_ranks(begun)} have begun it, "
            f"those of {say_ranks(queued)} have not"
        )
        evidence += [
            fact for rank in queued[:_MAX_SAID] for fact in _in_the_way(session, waiting[rank])
        ]
        advice = (
            f"see what the device of rank {queued[0]} runs before it: py-spy and nvidia-smi there"
        )
    else:
        done = sorted(set(members) - waiting.keys())
        where = f" on {say_ranks(waiting)}" if done else ""
        what = f"{name}: all {len(members)} ranks called it, and it has not ended{where}"
        advice = "look for NCCL WARN lines, Xid lines in the kernel's log, and links that are down"
    return Finding(
        kind=FindingKind.FAILED_OP,
        severity=Severity.ERROR,
        what=what,
        victims=tuple(sorted(waiting)),
        group=session.groups[group].label,
        seq=seq,
        at_ns=min(session.ranks[op.rank].ops.issued_ns[op.at] for op in waiting.values()),
        evidence=tuple(evidence),
        advice=advice,
    )


def _evidence(session: Session, op: OpRef, is_begun: bool) -> Evidence:
    site = session.site_of(op)
    where = f" at {site.file.rpartition('/')[2]}:{site.line} ({site.function})" if site else ""
    state = "its device has begun it" if is_begun else "it is queued"
    return Evidence(
        text=f"rank {op.rank} called {session.name_of(op)}{where}; {state}",
        rank=op.rank,
        op=op,
        site=where.removeprefix(" at "),
        at_ns=session.ranks[op.rank].ops.issued_ns[op.at],
    )


def _in_the_way(session: Session, op: OpRef) -> Iterator[Evidence]:
    """An older op of the same rank on another group that has not ended either."""
    ops = session.ranks[op.rank].ops
    for at in ops.in_flight():
        if at >= op.at:
            return
        if ops.status[at] == IN_FLIGHT and ops.group[at] != ops.group[op.at]:
            other = OpRef(op.rank, at)
            yield Evidence(
                text=f"before it, rank {op.rank} called {session.name_of(other)}, which has not ended",
                rank=op.rank,
                op=other,
            )
            return
