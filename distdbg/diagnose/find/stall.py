"""Ranks that others wait for and that live, move and are busy: no fault, a name.

"ranks 1-7 wait for rank 0, busy in save() for 12.0 s" is what a checkpoint by one rank looks like; "ranks 1-3
wait for rank 0, in the debugger at train.py:88 (step) for 40.0 s" is somebody at its prompt.
"""

from __future__ import annotations

from collections.abc import Mapping

from distdbg.diagnose.chains import ChainEnd, chain_ends
from distdbg.diagnose.debugged import Prompt, is_debugged, prompt_of
from distdbg.diagnose.find.missing import behind_by, is_benign, last_ops, missing_how, wait_evidence
from distdbg.diagnose.finding import Edge, Evidence, Finding, Kind, Severity
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.wording import fit, say_ranks, say_s, short_site, verb


def find(
    session: Session, matched: Matched, waits: Mapping[int, tuple[Edge, ...]]
) -> list[Finding]:
    findings = []
    for end in chain_ends(session, waits):
        debugged = tuple(rank for rank in end.ranks if _is_debugged(session, rank))
        if debugged:
            findings.append(_debugged(session, end, debugged))
        if not is_benign(session):
            continue
        busy = tuple(rank for rank in end.ranks if _is_busy(session, end, rank))
        if busy:
            findings.append(_finding(session, end, busy))
    return findings


def _is_busy(session: Session, end: ChainEnd, rank: int) -> bool:
    log = session.ranks.get(rank)
    if log is None or log.is_gone or is_debugged(log) or missing_how(session, end, rank):
        return False
    return log.exit is None and (log.activity is None or not log.activity.state.is_stuck)


def _is_debugged(session: Session, rank: int) -> bool:
    log = session.ranks.get(rank)
    return log is not None and not log.is_gone and is_debugged(log)


def _debugged(session: Session, end: ChainEnd, ranks: tuple[int, ...]) -> Finding:
    prompts = {rank: found for rank in ranks if (found := prompt_of(session, rank)) is not None}
    first = prompts[ranks[0]]
    direct = tuple(sorted({edge.rank for edge in end.direct}))
    numbers = {"waiting": float(len(end.waiters))}
    tails = [f" at {first.site}" if first.site and len(ranks) == 1 else ""]
    if session.now_ns != NEVER:
        numbers["debugged_s"] = max(session.now_ns - first.since_ns, 0) / 1e9
        tails.append(f" for {say_s(session.now_ns - first.since_ns)}")
    tails.append(f", in {session.name_of(end.op) if end.op else end.edge.text}")
    return Finding(
        kind=Kind.STALL,
        severity=Severity.NOTE,
        what=fit(
            f"{say_ranks(direct, 3)} {verb(direct, 'waits', 'wait')} for {say_ranks(ranks, 3)}, "
            "in the debugger",
            *tails,
        ),
        ranks=ranks,
        victims=end.waiters,
        at_ns=end.since_ns,
        evidence=(
            *(_prompt_evidence(rank, prompt) for rank, prompt in list(prompts.items())[:4]),
            *wait_evidence(session, end),
        ),
        advice="nothing has to be done: it goes on when its user says so, and no deadline passes till then",
        numbers=numbers,
    )


def _prompt_evidence(rank: int, prompt: Prompt) -> Evidence:
    why = f" ({prompt.why})" if prompt.why else ""
    where = f" at {prompt.site}" if prompt.site else ""
    return Evidence(
        text=f"rank {rank} is in the debugger{where}{why}",
        rank=rank,
        site=prompt.site,
        at_ns=prompt.since_ns,
    )


def _finding(session: Session, end: ChainEnd, ranks: tuple[int, ...]) -> Finding:
    first = session.ranks[ranks[0]]
    site, function, since = _busy_in(session, first)
    direct = tuple(sorted({edge.rank for edge in end.direct}))
    doing = f", busy in {function}()" if function else ", busy in its own code"
    tails = [doing if len(ranks) == 1 else ", busy in their own code"]
    numbers = {"waiting": float(len(end.waiters))}
    if since is not None and session.now_ns != NEVER:
        numbers["busy_s"] = max(session.now_ns - since, 0) / 1e9
        tails.append(f" for {say_s(session.now_ns - since)}")
    behind = behind_by(session, end, ranks[0])
    if behind is not None and behind > 1:
        numbers["behind"] = float(behind)
        tails.append(f" and {behind} ops behind")
    tails.append(f", in {session.name_of(end.op) if end.op else end.edge.text}")
    text = f"rank {ranks[0]} is busy" + (f" in {site}" if site else " in its own code")
    return Finding(
        kind=Kind.STALL,
        severity=Severity.NOTE,
        what=fit(
            f"{say_ranks(direct, 3)} {verb(direct, 'waits', 'wait')} for {say_ranks(ranks, 3)}",
            *tails,
        ),
        ranks=ranks,
        victims=end.waiters,
        at_ns=end.since_ns,
        evidence=(
            Evidence(text=text, rank=ranks[0], ranks=tuple(ranks), site=site, at_ns=since),
            *last_ops(session, ranks),
            *wait_evidence(session, end),
        ),
        advice="nothing has to be done if it goes on; else look at what it is busy with",
        numbers=numbers,
    )


def _busy_in(session: Session, log: RankLog) -> tuple[str, str, int | None]:
    """The place that it is busy in, the function there, and since when."""
    times = [end for end in log.ops.ended_ns[-8:] if end != NEVER]
    site = ""
    if log.activity is not None:
        times.append(log.activity.since_ns)
        stack = log.activity.stack
        site = short_site(log.activity.site or (str(stack[0]) if stack else ""))
    function = site.rpartition(" (")[2].removesuffix(")") if " (" in site else ""
    return site, function, session.time_ns(log.rank, max(times)) if times else None
