"""Slow links and hosts: transfers that take far longer than others of their kind and size.

Only the time from started to ended counts: waiting for late ranks is no transfer. Compared are:

    messages      the usual time (median) of each pair of ranks, for messages of about one size,
                  against that of all pairs, those inside a host apart from those between hosts
    collectives   the usual time of each group, for one kind, size, number of ranks and number of
                  hosts, against that of all such groups

Slow is what takes 3 times as long as the median of at least 4 others, at least 0.2 ms longer, and far
outside their own scatter; each needs 16 transfers. If nearly all slow pairs or groups share one host, and
its other pairs are slow too, that host is named.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import median
from typing import Final, TypeVar

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import GroupOps, Matched
from distdbg.diagnose.ops import NEVER, NONE
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.wording import say_ranks
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Flag
from distdbg.record.text import format_duration, format_nbytes

_LEAST_TRANSFERS: Final = 16
_LEAST_OTHERS: Final = 4
_LEAST_FACTOR: Final = 3.0
_LEAST_MORE_NS: Final = 200_000
_DEVIATIONS: Final = 6
_MAD_TO_SIGMA: Final = 1.4826
#: What is looked at of one rank and of one group.
_MAX_MESSAGES: Final = 512
_MAX_OPS: Final = 128
_MAX_FINDINGS: Final = 4
_SEND: Final = KIND_LABELS.index("send")
#: How large a share of what is slow must touch a host, and of what touches it must be slow.
_MAX_OF: Final = 0.75

Ranks = tuple[int, ...]
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class _Slow:
    ranks: Ranks
    """Sender and receiver, or the members of a group."""
    group: str
    """'' of a message."""
    what: str
    nbytes: int
    """As a power of two: at least."""
    time_ns: float
    usual_ns: float
    count: int
    """The number of its transfers."""
    others: int
    hosts: frozenset[str]

    @property
    def factor(self) -> float:
        return self.time_ns / max(self.usual_ns, 1.0)


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """Links and hosts over which data moves far slower than over others."""
    slow, seen = _slow_pairs(session)
    slow_groups, seen_groups = _slow_groups(session, matched)
    slow += slow_groups
    found = []
    for host in _guilty_hosts(slow, seen + seen_groups):
        theirs = [each for each in slow if host in each.hosts]
        slow = [each for each in slow if host not in each.hosts]
        found.append(_say_host(session, host, theirs))
    slow.sort(key=lambda each: -each.factor)
    said: set[Ranks] = set()
    for each in slow:
        if each.ranks not in said and len(said) < _MAX_FINDINGS:
            said.add(each.ranks)
            found.append(_say_link(session, each))
    return found


# --------------------------------------------------------------------------------------- messages


def _slow_pairs(session: Session) -> tuple[list[_Slow], list[frozenset[str]]]:
    times: dict[tuple[bool, int], dict[Ranks, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, log_ in session.ranks.items():
        for peer, nbytes, took in _messages(session, log_):
            other = session.ranks.get(peer)
            is_inside = other is not None and other.host == log_.host
            # Both ends have seen it; that of the sender is enough where there are both.
            times[is_inside, nbytes.bit_length()][rank, peer].append(took)
    slow: list[_Slow] = []
    seen: list[frozenset[str]] = []
    for (is_inside, bits), pairs in times.items():
        usual = _usual_times(pairs)
        for pair, typical in _out_of_line(usual):
            slow.append(
                _Slow(
                    ranks=pair,
                    group="",
                    what="messages inside a host" if is_inside else "messages between hosts",
                    nbytes=1 << bits - 1 if bits else 0,
                    time_ns=usual[pair],
                    usual_ns=typical,
                    count=len(pairs[pair]),
                    others=len(usual) - 1,
                    hosts=_hosts(session, pair),
                )
            )
        seen += [_hosts(session, pair) for pair in usual]
    return slow, seen


def _messages(session: Session, of: RankLog) -> Iterable[tuple[int, int, int]]:
    """List to whom a rank sent how much, and how long that took; a sample where there are very many."""
    ops = of.ops
    if not any(flag & Flag.MESSAGE for flag in set(ops.flags)):
        return
    rows = [
        at
        for at, (flags, kind) in enumerate(zip(ops.flags, ops.kind, strict=True))
        if flags & Flag.MESSAGE and kind == _SEND
    ]
    if len(rows) > _MAX_MESSAGES:
        rows = random.Random(of.rank).sample(rows, _MAX_MESSAGES)
    for at in rows:
        if ops.ended_ns[at] != NEVER and ops.started_ns[at] != NEVER and not ops.status[at]:
            peer = ops.peer[at]
            if peer != NONE:
                nbytes = session.forms[ops.form[at]].nbytes
                yield peer, nbytes, ops.ended_ns[at] - ops.started_ns[at]


# --------------------------------------------------------------------------------------- collectives

_Class = tuple[int, int, int, int]
"""Kind, bits of the size, ranks, hosts."""


def _slow_groups(session: Session, matched: Matched) -> tuple[list[_Slow], list[frozenset[str]]]:
    times: dict[_Class, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    hosts: dict[int, frozenset[str]] = {}
    for group, ops in matched:
        if len(ops.by_rank) < 2:
            continue
        hosts[group] = _hosts(session, ops.by_rank)
        width, spread = len(session.members(group)), len(hosts[group])
        for kind, nbytes, took in _transfers(session, ops):
            times[kind, nbytes.bit_length(), width, spread][group].append(took)
    slow: list[_Slow] = []
    seen: list[frozenset[str]] = []
    for (kind, bits, _, _), groups in times.items():
        usual = _usual_times(groups)
        for group, typical in _out_of_line(usual):
            name = KIND_LABELS[kind] if kind < len(KIND_LABELS) else "an op"
            slow.append(
                _Slow(
                    ranks=tuple(session.members(group)),
                    group=session.groups[group].label,
                    what=name,
                    nbytes=1 << bits - 1 if bits else 0,
                    time_ns=usual[group],
                    usual_ns=typical,
                    count=len(groups[group]),
                    others=len(usual) - 1,
                    hosts=hosts[group],
                )
            )
        seen += [hosts[group] for group in usual]
    return slow, seen


def _transfers(session: Session, ops: GroupOps) -> Iterable[tuple[int, int, int]]:
    """Kind, size and time of the ops of one member: the data of all moves together."""
    rank, mine = min(ops.by_rank.items())
    log_ = session.ranks.get(rank)
    if log_ is None:
        return
    columns = log_.ops
    some: Sequence[int] = mine.indexes
    if len(some) > _MAX_OPS:
        # Not each n-th: that could be the same line of the program each time.
        some = random.Random(rank).sample(some, _MAX_OPS)
    for at in some:
        if at < 0 or columns.status[at]:
            continue
        started, ended = columns.started_ns[at], columns.ended_ns[at]
        if started != NEVER and ended != NEVER:
            yield columns.kind[at], session.forms[columns.form[at]].nbytes, ended - started


# --------------------------------------------------------------------------------------- what is out of line


def _usual_times(times: Mapping[Key, Sequence[int]]) -> dict[Key, float]:
    return {key: median(each) for key, each in times.items() if len(each) >= _LEAST_TRANSFERS}


def _out_of_line(usual: Mapping[Key, float]) -> list[tuple[Key, float]]:
    """List those that take far longer than the others, each with what is usual."""
    if len(usual) <= _LEAST_OTHERS:
        return []
    typical = median(usual.values())
    logs = [log(max(time, 1.0)) for time in usual.values()]
    middle = median(logs)
    scatter = _MAD_TO_SIGMA * median(abs(each - middle) for each in logs)
    bar = max(log(_LEAST_FACTOR), _DEVIATIONS * scatter)
    return [
        (key, typical)
        for key, time in usual.items()
        if time - typical >= _LEAST_MORE_NS and log(max(time, 1.0)) - middle >= bar
    ]


def _hosts(session: Session, ranks: Iterable[int]) -> frozenset[str]:
    return frozenset(session.ranks[rank].host for rank in ranks if rank in session.ranks)


def _guilty_hosts(slow: Sequence[_Slow], seen: Sequence[frozenset[str]]) -> list[str]:
    """The host that most of what is slow has to do with, where most of what it does is slow."""
    counts = Counter(host for each in slow for host in each.hosts if host)
    if not counts:
        return []
    touched = Counter(host for hosts in seen for host in hosts)
    if len(touched) < 2:
        return []
    host, count = counts.most_common(1)[0]
    ranks = {rank for each in slow for rank in each.ranks}
    is_it = count >= _MAX_OF * len(slow) and count >= _MAX_OF * touched[host]
    return [host] if is_it and count > 1 and len(ranks) > 2 else []


# --------------------------------------------------------------------------------------- what is said


def _say_link(session: Session, it: _Slow) -> Finding:
    if it.group:
        subject = f"{it.what} on group '{it.group}' takes"
        at = f"between {say_ranks(it.ranks)}"
    else:
        subject = f"the link from rank {it.ranks[0]} to rank {it.ranks[1]} is slow:"
        at = _say_pair(session, it.ranks)
    return Finding(
        kind=FindingKind.SLOW_LINK,
        severity=Severity.WARNING,
        what=(
            f"{subject} {format_duration(int(it.time_ns))} for {format_nbytes(it.nbytes)}, "
            f"{it.factor:.1f} times what is usual"
        ),
        ranks=it.ranks if not it.group else (),
        victims=it.ranks if it.group else (),
        group=it.group,
        evidence=(_say_numbers(it),),
        advice=f"test the connection {at}: cable, port, route, and what else uses it",
        numbers=_numbers(it),
    )


def _say_pair(session: Session, ranks: Ranks) -> str:
    hosts = [session.ranks[rank].host if rank in session.ranks else "" for rank in ranks]
    if all(hosts) and hosts[0] != hosts[1]:
        return f"from host '{hosts[0]}' to host '{hosts[1]}'"
    return f"from rank {ranks[0]} to rank {ranks[1]}"


def _say_host(session: Session, host: str, slow: Sequence[_Slow]) -> Finding:
    worst = max(slow, key=lambda each: each.factor)
    ranks = tuple(sorted(rank for rank, log_ in session.ranks.items() if log_.host == host))
    return Finding(
        kind=FindingKind.SLOW_HOST,
        severity=Severity.WARNING,
        what=(
            f"transfers of host '{host}' ({say_ranks(ranks)}) are slow: up to "
            f"{worst.factor:.1f} times what is usual"
        ),
        ranks=ranks,
        victims=tuple(sorted({r for each in slow for r in each.ranks} - set(ranks))),
        evidence=tuple(_say_numbers(each) for each in sorted(slow, key=lambda e: -e.factor)[:8]),
        advice=f"test the network card and links of host '{host}', and what else runs there",
        numbers=_numbers(worst),
    )


def _say_numbers(it: _Slow) -> Evidence:
    whose = f"group '{it.group}'" if it.group else f"rank {it.ranks[0]} to rank {it.ranks[1]}"
    rate = f", {it.nbytes / it.time_ns:.2f} GB/s" if it.nbytes else ""
    size = f"{format_nbytes(it.nbytes)} and more" if it.nbytes else "no data"
    return Evidence(
        text=(
            f"{whose}: {it.what} of {size} take {format_duration(int(it.time_ns))}{rate} (median of "
            f"{it.count}); {it.others} others {format_duration(int(it.usual_ns))}"
        )
    )


def _numbers(it: _Slow) -> dict[str, float]:
    return {
        "transfer_s": it.time_ns / 1e9,
        "usual_s": it.usual_ns / 1e9,
        "factor": round(it.factor, 2),
        "nbytes": float(it.nbytes),
        "times": float(it.count),
    }
