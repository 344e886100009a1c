"""Ranks that live and are known not to move by themselves: stopped, in a debugger, in a loop, asleep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from distdbg.diagnose.chains import ChainEnd, chain_ends
from distdbg.diagnose.debugged import is_debugged
from distdbg.diagnose.find.missing import last_ops, wait_evidence
from distdbg.diagnose.finding import Edge, Evidence, Finding, Kind, Severity
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.session import Activity, Session
from distdbg.diagnose.wording import fit, known_ns, say_ranks, short_site, verb
from distdbg.record.rank_state import RankState

_IS: Final = {
    RankState.STOPPED: "is stopped",
    RankState.TRACED: "is stopped in a debugger",
    RankState.HOLDS_GIL: "holds the GIL",
    RankState.BUSY: "is busy and reaches no op",
    RankState.BLOCKED_IO: "is blocked in I/O",
    RankState.ASLEEP: "is asleep",
}
_ADVICE: Final = {
    RankState.STOPPED: "send its process SIGCONT, or find out who sent it SIGSTOP",
    RankState.TRACED: "let it go on in the debugger",
    RankState.HOLDS_GIL: "look at the call that does not return: no other thread of the rank can run",
    RankState.BUSY: "it may be at work: look at its stacks, and again in a while (distdbg stacks)",
    RankState.BLOCKED_IO: "look at the disk or network file system that it waits for",
    RankState.ASLEEP: "look at what it waits for: a lock, a pipe, a queue, a timer",
}
_MOST_FRAMES: Final = 6


def find(
    session: Session, matched: Matched, waits: Mapping[int, tuple[Edge, ...]]
) -> list[Finding]:
    ends = {rank: end for end in chain_ends(session, waits) for rank in end.ranks}
    findings = []
    for rank, log in sorted(session.ranks.items()):
        if log.is_gone or is_debugged(log):
            continue
        if log.activity is not None and log.activity.state.is_stuck:
            findings.append(_finding(session, rank, log.activity, ends.get(rank)))
    return findings


def _finding(session: Session, rank: int, seen: Activity, end: ChainEnd | None) -> Finding:
    site = short_site(seen.site)
    doing = _IS.get(seen.state, seen.state.value)
    since = known_ns(session.time_ns(rank, seen.since_ns))
    tails = [f": {seen.why}" if seen.why else "", f", at {site}" if site else ""]
    if end is not None:
        place = session.name_of(end.op) if end.op else end.edge.text
        tails.append(f"; {say_ranks(end.waiters, 3)} {verb(end.waiters, 'waits', 'wait')} for it")
        tails.append(f" in {place}")
    evidence = [
        Evidence(text=f"rank {rank} {doing}{tails[0]}", rank=rank, site=site, at_ns=since),
        *(
            Evidence(text=f"rank {rank} is in {frame}", rank=rank, site=short_site(str(frame)))
            for frame in seen.stack[:_MOST_FRAMES]
        ),
        *last_ops(session, (rank,)),
    ]
    if end is not None:
        evidence += wait_evidence(session, end)
    return Finding(
        kind=Kind.STUCK_RANK,
        severity=Severity.WARNING if end is None else Severity.ERROR,
        what=fit(f"rank {rank} {doing}", *tails),
        ranks=(rank,),
        victims=() if end is None else end.waiters,
        at_ns=since,
        evidence=tuple(evidence),
        advice=_ADVICE.get(seen.state, ""),
        numbers={} if end is None else {"waiting": float(len(end.waiters))},
    )
