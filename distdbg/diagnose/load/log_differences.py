"""Findings from logs about ranks that called something else, or nothing, where others wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from distdbg.diagnose.finding import Evidence, Finding, FindingKind
from distdbg.diagnose.load.log_facts import FactShape, LoggedFact
from distdbg.diagnose.load.log_fingerprints import LoggedCall, read_sides
from distdbg.diagnose.load.log_wording import (
    MOST_EVIDENCE,
    Facts,
    make_finding,
    say_ranks,
    say_who,
    shorten,
)


def find_mismatches(facts: Facts) -> list[Finding]:
    findings = []
    told = facts[FactShape.MISMATCH]
    if told:
        findings.append(_sides_differ(told))
    if facts[FactShape.SIZES]:
        sizes = facts[FactShape.SIZES]
        who = say_who(sizes, "a rank")
        findings.append(
            make_finding(
                FindingKind.MISMATCH,
                f"{who} received data of another size than its buffer: {sizes[0].text}",
                sizes,
                advice="compare the shapes that the ranks pass to this op; gloo does not say which is wrong",
            )
        )
    if facts[FactShape.DDP_DIFFERS]:
        differs = facts[FactShape.DDP_DIFFERS]
        ranks = {rank for fact in differs for rank in fact.ranks}
        findings.append(
            make_finding(
                FindingKind.MISMATCH,
                f"the model of {say_ranks(ranks)} differs: {shorten(differs[0].text, 80)}",
                differs,
                ranks=ranks,
                advice="build the same model on all ranks before it is wrapped",
            )
        )
    return findings


def _sides_differ(told: Sequence[LoggedFact]) -> Finding:
    """All ranks' words together: what a rank says of itself is true, what another says may be made up."""
    own: dict[int, LoggedCall] = {}
    for fact in told:
        for index, side in enumerate(read_sides(fact.text)):
            known = own.get(side.rank)
            if known is None or (index == 0 and side.kind) or (not known.kind and side.kind):
                own[side.rank] = side
    by_what: dict[str, list[int]] = defaultdict(list)
    for rank, side in sorted(own.items()):
        by_what[side.what].append(rank)
    groups = sorted(by_what.items(), key=lambda item: -len(item[1]))
    sides = [f"{what} on {say_ranks(ranks)}" for what, ranks in groups]
    blamed: tuple[int, ...] = ()
    if len(groups) > 1 and len(groups[0][1]) > len(groups[1][1]):
        blamed = tuple(rank for _, ranks in groups[1:] for rank in ranks)
    seq = next((side.seq for side in own.values() if side.seq), 0)
    number = f" (op #{seq})" if seq else ""
    return make_finding(
        FindingKind.MISMATCH,
        f"ranks called different ops{number}: {shorten('; '.join(sides), 80)}",
        told,
        ranks=blamed,
        victims=() if blamed else tuple(own),
        seq=seq,
        extra=[
            Evidence(text=f"rank {rank} called {side.what}", rank=rank)
            for rank, side in sorted(own.items())
        ][:MOST_EVIDENCE],
        advice="make all ranks take the same branches up to this op",
    )


def find_not_joined(facts: Facts) -> list[Finding]:
    joined = facts[FactShape.NOT_JOINED]
    if not joined:
        return []
    last = max(joined, key=lambda fact: fact.numbers["joined"])
    count, world = last.numbers["joined"], last.numbers["world"]
    seen = {f.rank for mine in facts.values() for f in mine if f.rank is not None}
    absent = sorted(set(range(min(world, 1 << 16))) - seen)
    surely = absent if len(absent) == world - count else []
    who = f": {say_ranks(surely)} did not" if surely else ""
    return [
        make_finding(
            FindingKind.MISSING_RANK,
            f"{count} of {world} ranks joined the process group{who}",
            joined,
            ranks=surely,
            advice="look whether all ranks were started, reach the store's host, and agree on the world size",
        )
    ]


def find_missing(facts: Facts) -> list[Finding]:
    told = facts[FactShape.MISSING]
    reached = facts[FactShape.REACHED]
    if told:
        ranks = {rank for fact in told for rank in fact.ranks}
        victims = {fact.rank for fact in [*told, *reached] if fact.rank is not None} - ranks
        return [
            make_finding(
                FindingKind.MISSING_RANK,
                f"{say_ranks(ranks)} did not arrive where others wait: {shorten(told[0].text, 70)}",
                [*told, *facts[FactShape.NOT_FINISHED], *reached],
                ranks=ranks,
                victims=victims,
                advice=f"see what rank {min(ranks)} did instead: its own log, or its stack next time",
            )
        ]
    if reached:
        # Rank 0 would have named who is late, had it come itself.
        victims = {fact.rank for fact in reached if fact.rank is not None}
        return [
            make_finding(
                FindingKind.MISSING_RANK,
                f"{say_ranks(victims)} waited for rank 0 at a barrier that it did not reach",
                reached,
                ranks=(0,),
                victims=victims,
                advice="see what rank 0 did instead: its own log, or its stack next time",
            )
        ]
    if facts[FactShape.NOT_FINISHED]:
        waits = facts[FactShape.NOT_FINISHED]
        return [
            make_finding(
                FindingKind.MISSING_RANK,
                f"some ranks wait for others: {shorten(waits[0].text, 90)}",
                waits,
                advice="see what the ranks outside this list do",
            )
        ]
    return []


def find_behind(facts: Facts) -> list[Finding]:
    """Who has called fewer ops than the others of its group, or another op of the same number."""
    findings = []
    groups = {
        fact.group for fact in facts[FactShape.PROGRESS] + facts[FactShape.TIMEOUT] if fact.seq
    }
    if len(groups) == 2 and "" in groups:
        groups.remove("")  # older lines do not name the only group that there is
        unnamed = ""
    else:
        unnamed = None
    for group in sorted(groups):
        timeouts = [f for f in facts[FactShape.TIMEOUT] if f.group in (group, unnamed) and f.seq]
        called: dict[int, int] = {}
        for fact in [f for f in facts[FactShape.PROGRESS] if f.group == group] + timeouts:
            if fact.rank is not None:
                called[fact.rank] = max(called.get(fact.rank, 0), fact.seq)
        where = f" on group '{group}'" if group else ""
        others = _other_op(timeouts, where, group)
        findings += others
        if others or len(called) < 2:
            continue
        least, most = min(called.values()), max(called.values())
        blocked = min((fact.seq for fact in timeouts), default=most)
        if least < blocked:
            late = [rank for rank, seq in called.items() if seq < blocked]
            name = next((f.kind for f in timeouts if f.seq == blocked), "op")
            findings.append(
                make_finding(
                    FindingKind.MISSING_RANK,
                    f"{say_ranks(late)} never called {name} #{blocked}{where}; "
                    f"the last called there is #{least}",
                    [f for f in facts[FactShape.PROGRESS] if f.group == group] + timeouts,
                    ranks=late,
                    victims=[rank for rank, seq in called.items() if seq >= blocked],
                    seq=blocked,
                    group=group,
                    advice=f"see what rank {min(late)} did instead: its own log, or its stack next time",
                )
            )
    return findings


def _other_op(timeouts: Sequence[LoggedFact], where: str, group: str) -> list[Finding]:
    by_seq: dict[int, list[LoggedFact]] = defaultdict(list)
    for fact in timeouts:
        by_seq[fact.seq].append(fact)
    for seq, mine in by_seq.items():
        whats: dict[str, set[int]] = defaultdict(set)
        for fact in mine:
            if fact.rank is not None:
                size = (
                    fact.numbers.get("numel_in", 0)
                    if fact.kind in ("all_reduce", "broadcast")
                    else 0
                )
                whats[f"{fact.kind} of {size} elements" if size else fact.kind].add(fact.rank)
        if len(whats) > 1:
            groups = sorted(whats.items(), key=lambda item: -len(item[1]))
            most_first = len(groups[0][1]) > len(groups[1][1])
            text = "; ".join(f"{what} on {say_ranks(ranks)}" for what, ranks in groups)
            return [
                make_finding(
                    FindingKind.MISMATCH,
                    f"op #{seq}{where} differs: {shorten(text, 90)}",
                    mine,
                    ranks={r for _, ranks in groups[1:] for r in ranks} if most_first else (),
                    seq=seq,
                    group=group,
                    advice="make all ranks take the same branches up to this op",
                )
            ]
    return []
