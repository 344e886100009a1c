"""Findings from logs about ranks that ended or are stuck: killed, raised, stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.load.log_facts import FactShape, LoggedFact
from distdbg.diagnose.load.log_wording import MAX_EVIDENCE, Facts, make_finding, say_ranks, shorten
from distdbg.diagnose.wording import verb

_SIGTERM: Final = -15
#: What a rank whose lines state this has not begun by itself.
_CONSEQUENCES: Final = frozenset(
    (
        FactShape.TIMEOUT,
        FactShape.STORE_TIMEOUT,
        FactShape.REACHED,
        FactShape.PEER_CLOSED,
        FactShape.FOLLOWS,
    )
)
#: Shapes of which a rank may exit with an error that needs no further explanation.
_EXPLAINS_EXIT: Final = _CONSEQUENCES | {
    FactShape.MISMATCH,
    FactShape.SIZES,
    FactShape.DDP_DIFFERS,
    FactShape.DDP_UNUSED,
    FactShape.MISSING,
    FactShape.NOT_JOINED,
    FactShape.PORT_TAKEN,
    FactShape.STUCK,
    FactShape.STOPPED,
    FactShape.NCCL_WARN,
    FactShape.NOT_FINISHED,
}


def find_kills_for_memory(facts: Facts) -> list[Finding]:
    kills = facts[FactShape.OOM_KILL]
    if not kills:
        return []
    ended = [f for f in facts[FactShape.CHILD] if f.numbers["exit_code"] == -9]
    ranks = {f.rank for f in kills if f.rank is not None}
    if not ranks:
        ranks = {f.rank for f in ended if f.rank is not None}
    who = say_ranks(ranks) if ranks else "a process of the job"
    return [
        make_finding(
            FindingKind.DEAD_RANK,
            f"{who} {verb(tuple(ranks) or (0,), 'was', 'were')} killed for memory by the kernel",
            kills + [f for f in ended if f.rank in ranks],
            ranks=ranks,
            advice="give it more memory or use less: a smaller batch, fewer loader processes, no copies",
        )
    ]


def find_deaths(facts: Facts) -> list[Finding]:
    """Ranks that raised or were killed, and say nothing of others."""
    explained = {f.rank for shape in _EXPLAINS_EXIT for f in facts[shape] if f.rank is not None}
    for_memory = {f.rank for f in facts[FactShape.OOM_KILL]}
    if facts[FactShape.OOM_KILL]:
        for_memory |= {f.rank for f in facts[FactShape.CHILD] if f.numbers["exit_code"] == -9}
    by_launcher = {f.pid for f in facts[FactShape.ENDED_BY_LAUNCHER]}
    found: dict[object, list[LoggedFact]] = {}
    for fact in facts[FactShape.RAISED]:
        found.setdefault(fact.rank if fact.rank is not None else fact.line.stream, []).append(fact)
    for fact in facts[FactShape.KILLED]:
        if fact.rank not in explained or fact.rank is None:
            found.setdefault(fact.rank if fact.rank is not None else fact.line.stream, []).append(
                fact
            )
    for fact in facts[FactShape.CHILD]:
        code = fact.numbers["exit_code"]
        if code in (0, _SIGTERM) or fact.pid in by_launcher or fact.rank in for_memory:
            continue
        if fact.rank in found:
            found[fact.rank].append(fact)
        elif fact.rank not in explained:
            found[fact.rank] = [fact]
    findings = []
    for rank, mine in found.items():
        first = mine[0]
        who = f"rank {rank}" if isinstance(rank, int) else "a process of the job"
        where = f" at {first.site}" if first.site else ""
        words = first.text if first.shape is not FactShape.RAISED else f"raised {first.text}"
        what = words if words.startswith((who, "local rank")) else f"{who}: {words}"
        if first.shape is FactShape.RAISED:
            what = f"{who} raised {shorten(first.text, 90 - len(where))}{where}"
        findings.append(
            make_finding(
                FindingKind.DEAD_RANK,
                what,
                mine,
                ranks={rank} if isinstance(rank, int) else (),
                advice="start with this error; those of other ranks came after it"
                if first.shape is FactShape.RAISED
                else "look at the last lines that it printed, and at the kernel's log of its host",
            )
        )
    findings.sort(key=lambda finding: finding.at_ns if finding.at_ns is not None else 2**63)
    return _first_alike(findings)


def _first_alike(findings: list[Finding]) -> list[Finding]:
    """All ranks that raised the same are one finding."""
    merged: dict[str, Finding] = {}
    for finding in findings:
        raised = finding.what.partition(" raised ")[2]
        earlier = merged.get(raised) if raised else None
        if earlier is None:
            merged[raised or finding.what] = finding
            continue
        ranks = tuple(sorted({*earlier.ranks, *finding.ranks}))
        merged[raised] = replace(
            earlier,
            what=f"{say_ranks(ranks)} raised {raised}" if ranks else earlier.what,
            ranks=ranks,
            evidence=(earlier.evidence + finding.evidence)[:MAX_EVIDENCE],
        )
    return list(merged.values())


def find_stops(facts: Facts) -> list[Finding]:
    stops = facts[FactShape.STOPPED]
    if not stops:
        return []
    return [
        make_finding(
            FindingKind.STOPPED,
            f"the job was stopped from outside: {shorten(stops[0].text)}",
            stops,
            severity=Severity.NOTE,
            advice="nothing to fix: ask who stopped it",
        )
    ]


def find_stuck(facts: Facts) -> list[Finding]:
    stuck = facts[FactShape.STUCK]
    if not stuck:
        return []
    ranks = {fact.rank for fact in stuck if fact.rank is not None}
    return [
        make_finding(
            FindingKind.STUCK_RANK,
            f"{say_ranks(ranks) or 'a rank'}: {shorten(stuck[0].text, 90)}",
            stuck,
            ranks=ranks,
            advice="its device or the CUDA driver does not answer: take stacks with py-spy dump --native",
        )
    ]


def find_gpu_errors(facts: Facts) -> list[Finding]:
    return [
        make_finding(
            FindingKind.FAILED_OP,
            f"{f'{fact.line.host}: ' if fact.line.host else ''}{shorten(fact.text, 90)}",
            [fact],
            ranks=() if fact.rank is None else (fact.rank,),
            advice="take this host out of the job and look at its GPU",
        )
        for fact in facts[FactShape.GPU_ERROR][:4]
    ]
