"""Stalls: ranks that others wait for and that may still arrive. No proven fault.

"ranks 1-7 wait for rank 0, busy in save() at ckpt.py:7 for 12 s on CPU" is what a checkpoint by one rank
looks like; "ranks 1-3 wait for rank 0, in the debugger at train.py:88 (step) for 40 s" is a person at its
prompt.
A note at first, a warning from the ages of `record.thresholds` on. If somebody stopped the job when they had
waited for so long, it is an error: the state that the stop interrupted.
"""

from __future__ import annotations

from dataclasses import replace

from distdbg.diagnose.chains import ChainEnd, chain_ends
from distdbg.diagnose.debugged import Prompt, is_debugged, prompt_of
from distdbg.diagnose.doing import RankActivity, doing_of
from distdbg.diagnose.find.missing import behind_by, is_benign, last_ops, missing_how, wait_evidence
from distdbg.diagnose.find.sent_by_another import sent_by_another
from distdbg.diagnose.find.stuck import (
    advice_of_reason,
    doing_evidence,
    is_overdue,
    past_words,
    waited_ns,
)
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import fit, say_ranks, say_s, verb
from distdbg.record.rank_state import RankState


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    findings = []
    for end in chain_ends(session, waits):
        debugged = tuple(rank for rank in end.ranks if _is_debugged(session, rank))
        if debugged:
            findings.append(_debugged(session, end, debugged))
        if not is_benign(session):
            continue
        busy = tuple(rank for rank in end.ranks if _is_busy(session, end, rank))
        if busy:
            findings.append(_finding(session, end, busy, waits))
    return findings


def _is_busy(session: Session, end: ChainEnd, rank: int) -> bool:
    log = session.ranks.get(rank)
    if log is None or log.is_gone or is_debugged(log) or missing_how(session, end, rank):
        return False
    if log.exit is not None:
        return False
    if log.activity is not None and log.activity.state is RankState.WAITING:
        return False  # for others, in an op that is not known: it did not come because of them
    is_stuck = log.activity is not None and log.activity.state.is_stuck
    return not (is_stuck and is_overdue(session, rank, end))


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
        kind=FindingKind.STALL,
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
        advice="nothing to do: its user continues it, and no deadline passes until then",
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


def _finding(
    session: Session,
    end: ChainEnd,
    ranks: tuple[int, ...],
    waits: Waits,
) -> Finding:
    doing = doing_of(session, ranks[0])
    waited = waited_ns(session, doing, end)
    numbers = {"waiting": float(len(end.waiters)), "waited_s": waited / 1e9}
    if doing.since_ns is not None:
        numbers["busy_s"] = doing.age_ns / 1e9
    behind = behind_by(session, end, ranks[0])
    if behind is not None and behind > 1:
        numbers["behind"] = float(behind)
    is_past = session.cut is not None
    is_old = waited >= doing.limit_ns
    kind, severity = FindingKind.STALL, Severity.WARNING if is_old else Severity.NOTE
    if is_past and is_old:
        kind = FindingKind.STUCK_RANK if doing.text else FindingKind.MISSING_RANK
        severity = Severity.ERROR
    if doing.text or is_past:
        same = ranks if all(doing_of(session, r).text == doing.text for r in ranks) else ()
        first = doing_evidence(session, doing, same)
    else:
        are, their = verb(ranks, "is", "are"), verb(ranks, "its", "their")
        text = f"{say_ranks(ranks)} {are} in {their} own code; no agent has looked closer"
        first = [Evidence(text=text, rank=ranks[0], at_ns=doing.since_ns)]
    astray, compare = sent_by_another(session, end, waits)
    return Finding(
        kind=kind,
        severity=severity,
        what=past_words(session, end, ranks, doing)
        if is_past
        else _now(session, end, ranks, doing),
        ranks=ranks,
        victims=end.waiters,
        at_ns=end.since_ns,
        evidence=(
            *astray,
            *(replace(one, ranks=ranks) for one in first),
            *last_ops(session, ranks),
            *wait_evidence(session, end),
        ),
        advice=compare or advice_of_reason(doing.why)
        if is_past
        else "nothing to do if it goes on; else look at its stacks (distdbg stacks)",
        numbers=numbers,
        traits=doing.traits,
    )


def _now(session: Session, end: ChainEnd, ranks: tuple[int, ...], doing: RankActivity) -> str:
    direct = tuple(sorted({edge.rank for edge in end.direct}))
    seen = f", {doing.text}" if doing.text and len(ranks) == 1 else ""
    tails = [seen or f", in {verb(ranks, 'its', 'their')} own code"]
    tails.append(doing.lasts)
    behind = behind_by(session, end, ranks[0])
    if behind is not None and behind > 1:
        tails.append(f" and {behind} ops behind")
    if place := end.waited_in(session):
        tails.append(f", in {place}")
    return fit(
        f"{say_ranks(direct, 3)} {verb(direct, 'waits', 'wait')} for {say_ranks(ranks, 3)}",
        *tails,
        doing.compared,
    )
