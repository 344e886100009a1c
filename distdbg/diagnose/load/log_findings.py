"""Makes findings of facts in logs: the cause, and what is only a consequence.

Not every error message is a cause. "Connection closed by peer" says that another rank is gone; a
rank that the launcher terminated did nothing wrong; a launcher's "root cause" is the process that it saw end
first. So the fact that explains most comes first, and its consequences go below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.load.log_deaths import (
    find_deaths,
    find_gpu_errors,
    find_kills_for_memory,
    find_stops,
    find_stuck,
)
from distdbg.diagnose.load.log_differences import (
    find_behind,
    find_mismatches,
    find_missing,
    find_not_joined,
)
from distdbg.diagnose.load.log_facts import FactShape, LoggedFact
from distdbg.diagnose.load.log_wording import Facts, make_finding, say_ranks, shorten


def find_in_facts(
    facts: Sequence[LoggedFact], ranks_by_pid: Mapping[int, int] | None = None
) -> list[Finding]:
    """Findings, the one that explains the others first; those below it are in its `follows`."""
    facts = _with_ranks(facts, ranks_by_pid or {})
    by_shape: dict[FactShape, list[LoggedFact]] = defaultdict(list)
    for fact in facts:
        by_shape[fact.shape].append(fact)
    causes = [finding for make in _CAUSES for finding in make(by_shape)]
    followers = _consequences(by_shape)
    if not causes:
        return followers
    deaths = [cause for cause in causes if cause.kind is FindingKind.DEAD_RANK]
    if len(deaths) > 1 and all(death.at_ns is not None for death in deaths):
        # The first of ranks that died by themselves may have taken the others along.
        deaths.sort(key=lambda death: death.at_ns or 0)
        causes = deaths + [cause for cause in causes if cause not in deaths]
    root = replace(causes[0], follows=(*causes[0].follows, *followers))
    return [root, *causes[1:]]


def _with_ranks(facts: Sequence[LoggedFact], ranks_by_pid: Mapping[int, int]) -> list[LoggedFact]:
    """Tell the rank of facts that know a process or a local rank only."""
    by_pid = {**ranks_by_pid, **{f.pid: f.rank for f in facts if f.pid and f.rank is not None}}
    by_local = {
        f.numbers["local_rank"]: f.rank
        for f in facts
        if f.rank is not None and "local_rank" in f.numbers
    }
    reported = []
    for fact in facts:
        if fact.rank is None:
            local = fact.numbers.get("local_rank", fact.line.local_rank)
            rank = by_pid.get(fact.pid) if fact.pid else None
            if rank is None and local is not None:
                # Without a word on ranks the job is taken to be of one host.
                rank = by_local.get(local, local)
            fact.rank = rank
        reported.append(fact)
    return reported


# ------------------------------------------------------------------------------- causes


def _unused(facts: Facts) -> list[Finding]:
    unused = facts[FactShape.DDP_UNUSED]
    if not unused:
        return []
    best = max(unused, key=lambda fact: len(fact.words.get("names", "")))
    ranks = {fact.rank for fact in unused if fact.rank is not None}
    return [
        make_finding(
            FindingKind.FAILED_OP,
            f"DDP on {say_ranks(ranks) or 'a rank'}: {shorten(best.text, 90)}",
            unused,
            ranks=ranks,
            advice="leave no branch of the model out of the loss, or pass find_unused_parameters=True",
        )
    ]


def _port(facts: Facts) -> list[Finding]:
    taken = facts[FactShape.PORT_TAKEN]
    if not taken:
        return []
    port = next((f.words["port"] for f in taken if f.words.get("port")), "")
    return [
        make_finding(
            FindingKind.FAILED_OP,
            f"port {port} is taken by another process"
            if port
            else "its port is taken by another process",
            taken,
            advice=f"find who holds it (ss -ltnp 'sport = :{port}'), or choose another port"
            if port
            else "choose another port",
        )
    ]


_CAUSES: Final[Sequence[Callable[[Facts], list[Finding]]]] = (
    find_kills_for_memory,
    find_gpu_errors,
    find_deaths,
    _port,
    find_mismatches,
    _unused,
    find_not_joined,
    find_missing,
    find_behind,
    find_stuck,
    find_stops,
)


# ------------------------------------------------------------------------------- consequences


def _consequences(facts: Facts) -> list[Finding]:
    """One finding per kind of message that something else made."""
    words = {
        FactShape.TIMEOUT: "ops timed out",
        FactShape.STORE_TIMEOUT: "waits for the store timed out",
        FactShape.PEER_CLOSED: "connections of peers were closed",
        FactShape.NCCL_WARN: "NCCL warns",
        FactShape.FOLLOWS: "processes ended because of others",
        FactShape.ENDED_BY_LAUNCHER: "the launcher terminated the rest",
    }
    findings = []
    for shape, text in words.items():
        mine = facts[shape]
        if not mine:
            continue
        who = {fact.rank for fact in mine if fact.rank is not None}
        on = f" on {say_ranks(who)}" if who else ""
        is_note = shape is FactShape.ENDED_BY_LAUNCHER
        findings.append(
            make_finding(
                FindingKind.FAILED_OP,
                f"{text}{on}: {shorten(mine[0].text, 80)}",
                mine,
                victims=who,
                seq=mine[0].seq,
                group=mine[0].group,
                severity=Severity.NOTE if is_note else Severity.ERROR,
                advice="look for what came before it; record the job to see which rank was waited for",
            )
        )
    return findings


# ------------------------------------------------------------------------------- words
