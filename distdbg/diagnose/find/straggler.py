"""Stragglers: ranks that are late again and again, so that all others wait for them.

Reported is a rank that was late (`lateness` has the measure) for at least 12 ops of a group, at least
one in 20, far more often than its peers are by chance, and has cost at least 5 % of the time in which
it was so. Not reported:

    a pause, a checkpoint, the first op      few ops; each counts for at most four times
                                             the usual delay of that rank
    a different rank each time               late no more often than its peers
    a rank that was kept waiting elsewhere   its own code took no longer than that of the others: what
                                             it spent in ops of other groups is no time of its own
    a slow transfer                          begins when all have arrived, see `slow_link`

When the ranks of one host are all late and those of other hosts are not, the host is named instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Final

from distdbg.diagnose.debugged import held_spans
from distdbg.diagnose.find.lateness import LateArrival, Lateness, measure
from distdbg.diagnose.find.own_time import MAX_USUAL, own_time, parts_between
from distdbg.diagnose.find.phrases import at_site, called, say_share
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import GroupOps, Matched
from distdbg.diagnose.ops import NEVER, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import fit, say_ranks, site_of
from distdbg.record.entries import MarkEntry
from distdbg.record.format import NO_COLLECTIVE
from distdbg.record.text import format_duration

_LEAST_TIMES: Final = 12
_MAX_GAP: Final = 20
#: Ops are no independent throws: who is late for one comes late to the next, and the time is chosen.
_DEVIATIONS: Final = 8
_LEAST_COST: Final = 0.05
#: Share of all delay of its group in that time.
_LEAST_PART: Final = 0.3
#: How much of the lateness must be time in the rank's own code.
_LEAST_OWN: Final = 0.4
#: Share of what the worst straggler costs.
_LEAST_OF_WORST: Final = 0.2
#: In groups up to this size no rank is usual: it is compared with the worst of the others.
_FEW: Final = 3
_LEAST_TIMES_PEER: Final = 4
_MAX_FINDINGS: Final = 8
#: What a straggler that is in time again must have cost to be a warning.
_LEAST_WARNED_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Straggler:
    rank: int
    group: int
    first_seq: int
    last_seq: int
    worst_seq: int
    share: float
    """Share of the ops in that time."""
    times: float
    usual_ns: float
    worst_ns: int
    cost_ns: float
    """What all others together waited for it."""
    lost_share: float
    """Share of the time."""
    own_ns: float
    peers_own_ns: float
    is_over: bool
    """Whether it came in time again at the end."""


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """The ranks that others wait for again and again."""
    found: dict[int, _Straggler] = {}
    held = held_spans(session)
    for group, ops in matched:
        lateness = measure(session, group, ops, held)
        if lateness is None:
            continue
        usual = _usual_share(lateness)
        for rank, late in lateness.late.items():
            mine = _judge(session, (group, ops, lateness, usual), rank, late)
            if mine and (rank not in found or mine.cost_ns > found[rank].cost_ns):
                found[rank] = mine
    most = max((each.cost_ns for each in found.values()), default=0.0)
    # Beside one that costs far more, others are late for its sake, or not worth a word yet.
    worth = {rank: each for rank, each in found.items() if each.cost_ns >= _LEAST_OF_WORST * most}
    return _say(session, worth)


# --------------------------------------------------------------------------------------- who it is


def _judge(
    session: Session, seen: tuple[int, GroupOps, Lateness, float], rank: int, late: LateArrival
) -> _Straggler | None:
    group, ops, lateness, usual_share = seen
    if len(late.at) < _LEAST_TIMES:
        return None
    begin, end = _longest_run(late.at)
    times = end - begin
    if times < _LEAST_TIMES:
        return None
    first, last = late.at[begin], late.at[end - 1]
    count = last - first + 1
    if times * _MAX_GAP < count or not _is_beyond_chance(
        lateness, usual_share, rank, times, first, last
    ):
        return None
    by_ns = late.by_ns[begin:end]
    usual = median(by_ns)
    most = MAX_USUAL * usual
    lost = sum(min(by, most) for by in by_ns)
    peers = _peers_lost(lateness, rank, first, last, most)
    elapsed = lateness.clock_ns[last] - lateness.clock_ns[first]
    delay = sum(min(by, most) for at, by in lateness.worst_ns.items() if first <= at <= last)
    if (lost - peers) * lateness.every < _LEAST_COST * elapsed or lost < _LEAST_PART * delay:
        return None
    seqs = lateness.seqs
    own = own_time(session, ops, lateness.ranks, rank, (seqs[first], seqs[last]), most)
    # What the rank's own code took beyond that of its peers has to explain that it is late.
    if own.more_ns < _LEAST_OWN * lost * lateness.every * (count - 1) / count:
        return None
    per_op = max(1.0, count * lateness.every)
    worst = max(range(begin, end), key=late.by_ns.__getitem__)
    return _Straggler(
        rank=rank,
        group=group,
        first_seq=seqs[first],
        last_seq=seqs[last],
        worst_seq=seqs[late.at[worst]],
        share=times / count,
        times=times * lateness.every,
        usual_ns=usual,
        worst_ns=late.by_ns[worst],
        cost_ns=sum(late.cost_ns[begin:end]) * lateness.every,
        lost_share=lost * lateness.every / elapsed if elapsed else 0.0,
        own_ns=own.mine_ns / per_op,
        peers_own_ns=own.peers_ns / per_op,
        is_over=len(seqs) - last > max(_LEAST_TIMES, 4 * count / times),
    )


def _longest_run(at: Sequence[int]) -> tuple[int, int]:
    """Where it was late at its usual rhythm without a longer break: begin and end in `at`."""
    gaps = [b - a for a, b in pairwise(at)]
    most = 4 * median(gaps) + 2
    begin, best = 0, (0, 0)
    for index, gap in enumerate([*gaps, most + 1]):
        if gap > most:
            if index + 1 - begin > best[1] - best[0]:
                best = (begin, index + 1)
            begin = index + 1
    begin, end = best
    # By chance it may have been late a little before that.
    while end - begin > 1 and gaps[begin] > most / 2:
        begin += 1
    while end - begin > 1 and gaps[end - 2] > most / 2:
        end -= 1
    return begin, end


def _is_beyond_chance(
    lateness: Lateness, usual: float, rank: int, times: int, first: int, last: int
) -> bool:
    """Whether it is late far more often than its peers are; `usual` is their share of ops."""
    count = last - first + 1
    if len(lateness.ranks) <= _FEW:
        for peer, late in lateness.late.items():
            if peer != rank:
                then = sum(first <= at <= last for at in late.at)
                if times < _LEAST_TIMES_PEER * then:
                    return False
                usual = max(usual, then / count, len(late.at) / len(lateness.seqs))
    expected = usual * count
    return times > expected + _DEVIATIONS * sqrt(expected * (1 - usual) + 1)


def _usual_share(lateness: Lateness) -> float:
    """Return in which share of the ops a usual rank is late."""
    counts = [len(late.at) for late in lateness.late.values()]
    counts += [0] * (len(lateness.ranks) - len(counts))
    return sorted(counts)[(len(counts) - 1) // 2] / len(lateness.seqs)


def _peers_lost(lateness: Lateness, rank: int, first: int, last: int, most: float) -> float:
    """What a usual peer has cost in that time; of few peers, the worst."""
    lost = [
        sum(
            min(by, most) for at, by in zip(late.at, late.by_ns, strict=True) if first <= at <= last
        )
        for peer, late in lateness.late.items()
        if peer != rank
    ]
    if len(lateness.ranks) <= _FEW:
        return max(lost, default=0.0)
    lost += [0.0] * (len(lateness.ranks) - 1 - len(lost))
    return sorted(lost)[len(lost) // 2]


# --------------------------------------------------------------------------------------- what is said


def _say(session: Session, found: Mapping[int, _Straggler]) -> list[Finding]:
    hosts = _late_hosts(session, found)
    said = [_say_host(session, host, found, ranks) for host, ranks in hosts.items()]
    named = {rank for ranks in hosts.values() for rank in ranks}
    alone = sorted(
        (each for rank, each in found.items() if rank not in named),
        key=lambda each: -each.cost_ns,
    )
    return said + [_say_rank(session, each) for each in alone[:_MAX_FINDINGS]]


def _late_hosts(session: Session, found: Mapping[int, _Straggler]) -> dict[str, list[int]]:
    ranks: dict[str, list[int]] = {}
    for rank, log in session.ranks.items():
        ranks.setdefault(log.host, []).append(rank)
    hosts = {
        host: mine
        for host, mine in ranks.items()
        if host and len(mine) > 1 and all(rank in found for rank in mine)
    }
    return hosts if len(ranks) > len(hosts) else {}


def _say_rank(session: Session, it: _Straggler) -> Finding:
    kind, label = session.kind_of(_op(session, it, it.worst_seq)), session.groups[it.group].label
    return Finding(
        kind=FindingKind.STRAGGLER,
        severity=_severity(it),
        what=fit(
            f"rank {it.rank} comes late to {kind} on group '{label}'",
            f": by {format_duration(int(it.usual_ns))} in {say_share(it.share)} of the ops",
        ),
        ranks=(it.rank,),
        victims=_others(session, it),
        group=label,
        seq=it.first_seq,
        at_ns=_time(session, it),
        evidence=tuple(_evidence(session, it)),
        advice=_advice(session, it),
        numbers=_numbers(it),
    )


def _severity(it: _Straggler) -> Severity:
    """A note where it is over and has cost all others together less than a second."""
    return Severity.NOTE if it.is_over and it.cost_ns < _LEAST_WARNED_NS else Severity.WARNING


def _say_host(
    session: Session, host: str, found: Mapping[int, _Straggler], ranks: Sequence[int]
) -> Finding:
    worst = max((found[rank] for rank in ranks), key=lambda each: each.cost_ns)
    label = session.groups[worst.group].label
    return Finding(
        kind=FindingKind.SLOW_HOST,
        severity=Severity.WARNING,
        what=(
            f"host '{host}' is slow: its {say_ranks(ranks)} all come late, to group '{label}' by "
            f"{format_duration(int(median(found[rank].usual_ns for rank in ranks)))}"
        ),
        ranks=tuple(sorted(ranks)),
        victims=tuple(rank for rank in _others(session, worst) if rank not in ranks),
        group=label,
        seq=worst.first_seq,
        at_ns=min(_time(session, found[rank]) for rank in ranks),
        evidence=tuple(_evidence(session, worst)),
        advice=f"compare host '{host}' with the others: its load, clock rate, memory and temperature",
        numbers=_numbers(worst),
    )


def _evidence(session: Session, it: _Straggler) -> list[Evidence]:
    op = _op(session, it, it.first_seq)
    since = _mark_before(session, it, op)
    until = f" until #{it.last_seq}" if it.is_over else ""
    words = (
        f"rank {it.rank} is late since {session.name_of(op)}{at_site(session, op)}{since}{until}"
    )
    worst = _op(session, it, it.worst_seq)
    found = [
        called(session, op, words),
        called(session, worst, f"by {format_duration(it.worst_ns)} at worst, at #{it.worst_seq}"),
        Evidence(
            text=(
                f"between two of these ops rank {it.rank} spends {format_duration(int(it.own_ns))} in its "
                f"own code, the others {format_duration(int(it.peers_own_ns))}"
            ),
            rank=it.rank,
        ),
        Evidence(
            text=f"the others have waited {format_duration(int(it.cost_ns))} for it, all together"
        ),
    ]
    transfer = _transfer(session, it)
    if transfer is not None:
        found.append(
            Evidence(
                text=f"once all have arrived the op takes {format_duration(transfer)}: it is not the transfer"
            )
        )
    return found


def _advice(session: Session, it: _Straggler) -> str:
    here, before = _where_it_is(session, it)
    if here and before and before != here:
        return f"see what rank {it.rank} does between {before} and {here}"
    where = f" before {here}" if here else " between its ops"
    return f"see what rank {it.rank} does{where}: its share of the work, its data, its host's load"


def _where_it_is(session: Session, it: _Straggler) -> tuple[str, str]:
    """The site that it comes to from most of its own time, and that of the op before; ''."""
    ops = session.ranks[it.rank].ops
    times: dict[int, int] = defaultdict(int)
    last: dict[int, int] = {}
    begin, end = (_op(session, it, seq).at for seq in (it.first_seq, it.last_seq))
    for at, part in parts_between(session, it.rank, begin, end):
        times[ops.stack[at]] += part
        last[ops.stack[at]] = at
    if not times:
        return "", ""
    at = last[max(times, key=times.__getitem__)]
    before = site_of(session, OpRef(it.rank, at - 1)) if at else ""
    return site_of(session, OpRef(it.rank, at)), before


def _mark_before(session: Session, it: _Straggler, op: OpRef) -> str:
    issued = session.ranks[it.rank].ops.issued_ns[op.at]
    marks = (
        note for note in session.ranks[it.rank].notes if isinstance(note, MarkEntry) and note.name
    )
    last = max(
        (mark for mark in marks if mark.issued_ns <= issued),
        key=lambda mark: mark.issued_ns,
        default=None,
    )
    if last is None:
        return ""
    return f", after '{last.name}'" + ("" if last.value is None else f" {last.value:g}")


def _transfer(session: Session, it: _Straggler) -> int | None:
    ops = session.ranks[it.rank].ops
    begin, end = (_op(session, it, seq).at for seq in (it.first_seq, it.last_seq))
    times = [
        ended - started
        for group, started, ended in zip(
            ops.group[begin : end + 1],
            ops.started_ns[begin : end + 1],
            ops.ended_ns[begin : end + 1],
            strict=True,
        )
        if group == it.group and started != NEVER and ended != NEVER
    ]
    return int(median(times)) if times else None


def _numbers(it: _Straggler) -> dict[str, float]:
    return {
        "late_s": it.usual_ns / 1e9,
        "worst_s": it.worst_ns / 1e9,
        "times": round(it.times),
        "share_of_ops": round(it.share, 3),
        "cost_s": it.cost_ns / 1e9,
        "share_of_time": round(it.lost_share, 3),
    }


def _op(session: Session, it: _Straggler, seq: int) -> OpRef:
    ops = session.ranks[it.rank].ops
    # Once per finding: a search costs less than to keep the index of each late op.
    at = next(
        at
        for at, (group, number, flags) in enumerate(zip(ops.group, ops.seq, ops.flags, strict=True))
        if group == it.group and number == seq and not flags & NO_COLLECTIVE
    )
    return OpRef(it.rank, at)


def _time(session: Session, it: _Straggler) -> int:
    op = _op(session, it, it.first_seq)
    return session.time_ns(it.rank, session.ranks[it.rank].ops.issued_ns[op.at])


def _others(session: Session, it: _Straggler) -> tuple[int, ...]:
    return tuple(rank for rank in session.members(it.group) if rank != it.rank)
