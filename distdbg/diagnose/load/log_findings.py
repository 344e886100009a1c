"""From what lines state to findings: whom each blames, and what only followed from something else.

A message is no cause because it is there. "Connection closed by peer" says that somebody else is gone; a
rank that the launcher ended did nothing wrong; a launcher's "root cause" is the process that it saw end
first. So facts are put into findings by what they can know, the one that explains most comes first, and what
follows hangs below it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, Kind, Severity
from distdbg.diagnose.load.log_facts import Fact, Shape
from distdbg.diagnose.load.log_fingerprints import Side, read_sides
from distdbg.errors import format_ranks

_MOST_EVIDENCE: Final = 12
_SIGTERM: Final = -15
#: What a rank whose lines state this has not begun by itself.
_CONSEQUENCES: Final = frozenset(
    (Shape.TIMEOUT, Shape.STORE_TIMEOUT, Shape.REACHED, Shape.PEER_CLOSED, Shape.FOLLOWS)
)
#: Shapes of which a rank may exit with an error that needs no further explanation.
_EXPLAINS_EXIT: Final = _CONSEQUENCES | {
    Shape.MISMATCH, Shape.SIZES, Shape.DDP_DIFFERS, Shape.DDP_UNUSED, Shape.MISSING, Shape.NOT_JOINED,
    Shape.PORT_TAKEN, Shape.STUCK, Shape.STOPPED, Shape.NCCL_WARN, Shape.NOT_FINISHED,
}  # fmt: skip


def find_in_facts(
    facts: Sequence[Fact], ranks_by_pid: Mapping[int, int] | None = None
) -> list[Finding]:
    """Findings, the one that explains the others first; those below it are in its `follows`."""
    facts = _with_ranks(facts, ranks_by_pid or {})
    by_shape: dict[Shape, list[Fact]] = defaultdict(list)
    for fact in facts:
        by_shape[fact.shape].append(fact)
    causes = [finding for make in _CAUSES for finding in make(by_shape)]
    followers = _consequences(by_shape)
    if not causes:
        return followers
    deaths = [cause for cause in causes if cause.kind is Kind.DEAD_RANK]
    if len(deaths) > 1 and all(death.at_ns is not None for death in deaths):
        # Of ranks that died by themselves, the first in time may have taken the others along.
        deaths.sort(key=lambda death: death.at_ns or 0)
        causes = deaths + [cause for cause in causes if cause not in deaths]
    root = replace(causes[0], follows=(*causes[0].follows, *followers))
    return [root, *causes[1:]]


def _with_ranks(facts: Sequence[Fact], ranks_by_pid: Mapping[int, int]) -> list[Fact]:
    """Tell the rank of facts that know a process or a local rank only."""
    by_pid = {**ranks_by_pid, **{f.pid: f.rank for f in facts if f.pid and f.rank is not None}}
    by_local = {
        f.numbers["local_rank"]: f.rank
        for f in facts
        if f.rank is not None and "local_rank" in f.numbers
    }
    told = []
    for fact in facts:
        if fact.rank is None:
            local = fact.numbers.get("local_rank", fact.line.local_rank)
            rank = by_pid.get(fact.pid) if fact.pid else None
            if rank is None and local is not None:
                # Without a word on ranks the job is taken to be of one host.
                rank = by_local.get(local, local)
            fact.rank = rank
        told.append(fact)
    return told


# ------------------------------------------------------------------------------- causes

_Facts = dict[Shape, list[Fact]]


def _killed_for_memory(facts: _Facts) -> list[Finding]:
    kills = facts[Shape.OOM_KILL]
    if not kills:
        return []
    ended = [f for f in facts[Shape.CHILD] if f.numbers["exit_code"] == -9]
    ranks = {f.rank for f in kills if f.rank is not None}
    if not ranks:
        ranks = {f.rank for f in ended if f.rank is not None}
    who = f"rank {format_ranks(ranks)}" if ranks else "a process of the job"
    return [
        _finding(
            Kind.DEAD_RANK,
            f"{who} was killed for memory by the kernel",
            kills + [f for f in ended if f.rank in ranks],
            ranks=ranks,
            advice="give it more memory or use less: a smaller batch, fewer loader processes, no copies",
        )
    ]


def _died(facts: _Facts) -> list[Finding]:
    """Ranks that raised or were killed, and say nothing of others."""
    explained = {f.rank for shape in _EXPLAINS_EXIT for f in facts[shape] if f.rank is not None}
    for_memory = {f.rank for f in facts[Shape.OOM_KILL]}
    if facts[Shape.OOM_KILL]:
        for_memory |= {f.rank for f in facts[Shape.CHILD] if f.numbers["exit_code"] == -9}
    by_launcher = {f.pid for f in facts[Shape.ENDED_BY_LAUNCHER]}
    found: dict[object, list[Fact]] = {}
    for fact in facts[Shape.RAISED]:
        found.setdefault(fact.rank if fact.rank is not None else fact.line.stream, []).append(fact)
    for fact in facts[Shape.KILLED]:
        if fact.rank not in explained or fact.rank is None:
            found.setdefault(fact.rank if fact.rank is not None else fact.line.stream, []).append(
                fact
            )
    for fact in facts[Shape.CHILD]:
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
        words = first.text if first.shape is not Shape.RAISED else f"raised {first.text}"
        what = words if words.startswith((who, "local rank")) else f"{who}: {words}"
        if first.shape is Shape.RAISED:
            what = f"{who} raised {_short(first.text, 90 - len(where))}{where}"
        findings.append(
            _finding(
                Kind.DEAD_RANK,
                what,
                mine,
                ranks={rank} if isinstance(rank, int) else (),
                advice="begin with this error; what other ranks say came after it"
                if first.shape is Shape.RAISED
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
            what=f"ranks {format_ranks(ranks)} raised {raised}" if ranks else earlier.what,
            ranks=ranks,
            evidence=(earlier.evidence + finding.evidence)[:_MOST_EVIDENCE],
        )
    return list(merged.values())


def _stopped(facts: _Facts) -> list[Finding]:
    stops = facts[Shape.STOPPED]
    if not stops:
        return []
    return [
        _finding(
            Kind.STOPPED,
            f"the job was ended from outside: {_short(stops[0].text)}",
            stops,
            severity=Severity.NOTE,
            advice="nothing: who ended it knows why",
        )
    ]


def _mismatch(facts: _Facts) -> list[Finding]:
    findings = []
    told = facts[Shape.MISMATCH]
    if told:
        findings.append(_sides_differ(told))
    if facts[Shape.SIZES]:
        sizes = facts[Shape.SIZES]
        who = _who(sizes, "a rank")
        findings.append(
            _finding(
                Kind.MISMATCH,
                f"{who} was sent data of another size than it has room for: {sizes[0].text}",
                sizes,
                advice="compare the shapes that the ranks give to this op; gloo does not say whose is wrong",
            )
        )
    if facts[Shape.DDP_DIFFERS]:
        differs = facts[Shape.DDP_DIFFERS]
        ranks = {rank for fact in differs for rank in fact.ranks}
        findings.append(
            _finding(
                Kind.MISMATCH,
                f"the model of rank {format_ranks(ranks)} is another: {_short(differs[0].text, 80)}",
                differs,
                ranks=ranks,
                advice="build the same model on all ranks before it is wrapped",
            )
        )
    return findings


def _sides_differ(told: Sequence[Fact]) -> Finding:
    """All ranks' words together: what a rank says of itself is true, what another says may be made up."""
    own: dict[int, Side] = {}
    for fact in told:
        for index, side in enumerate(read_sides(fact.text)):
            known = own.get(side.rank)
            if known is None or (index == 0 and side.kind) or (not known.kind and side.kind):
                own[side.rank] = side
    by_what: dict[str, list[int]] = defaultdict(list)
    for rank, side in sorted(own.items()):
        by_what[side.what].append(rank)
    groups = sorted(by_what.items(), key=lambda item: -len(item[1]))
    sides = [f"{what} on {_ranks_words(ranks)}" for what, ranks in groups]
    blamed: tuple[int, ...] = ()
    if len(groups) > 1 and len(groups[0][1]) > len(groups[1][1]):
        blamed = tuple(rank for _, ranks in groups[1:] for rank in ranks)
    seq = next((side.seq for side in own.values() if side.seq), 0)
    number = f" (op #{seq})" if seq else ""
    return _finding(
        Kind.MISMATCH,
        f"ranks called different ops{number}: {_short('; '.join(sides), 80)}",
        told,
        ranks=blamed,
        victims=() if blamed else tuple(own),
        seq=seq,
        extra=[
            Evidence(text=f"rank {rank} called {side.what}", rank=rank)
            for rank, side in sorted(own.items())
        ][:_MOST_EVIDENCE],
        advice="make all ranks take the same way through the program up to this op",
    )


def _unused(facts: _Facts) -> list[Finding]:
    unused = facts[Shape.DDP_UNUSED]
    if not unused:
        return []
    best = max(unused, key=lambda fact: len(fact.words.get("names", "")))
    ranks = {fact.rank for fact in unused if fact.rank is not None}
    return [
        _finding(
            Kind.FAILED_OP,
            f"DDP on {_ranks_words(ranks) or 'a rank'}: {_short(best.text, 90)}",
            unused,
            ranks=ranks,
            advice="leave no branch of the model out of the loss, or pass find_unused_parameters=True",
        )
    ]


def _port(facts: _Facts) -> list[Finding]:
    taken = facts[Shape.PORT_TAKEN]
    if not taken:
        return []
    port = next((f.words["port"] for f in taken if f.words.get("port")), "")
    return [
        _finding(
            Kind.FAILED_OP,
            f"port {port} is taken by another process"
            if port
            else "its port is taken by another process",
            taken,
            advice=f"find who holds it (ss -ltnp 'sport = :{port}'), or choose another port"
            if port
            else "choose another port",
        )
    ]


def _not_joined(facts: _Facts) -> list[Finding]:
    joined = facts[Shape.NOT_JOINED]
    if not joined:
        return []
    last = max(joined, key=lambda fact: fact.numbers["joined"])
    count, world = last.numbers["joined"], last.numbers["world"]
    seen = {f.rank for mine in facts.values() for f in mine if f.rank is not None}
    absent = sorted(set(range(min(world, 1 << 16))) - seen)
    surely = absent if len(absent) == world - count else []
    who = f": rank {format_ranks(surely)} did not" if surely else ""
    return [
        _finding(
            Kind.MISSING_RANK,
            f"{count} of {world} ranks joined the process group{who}",
            joined,
            ranks=surely,
            advice="look whether all ranks were started, reach the store's host, and agree on the world size",
        )
    ]


def _missing(facts: _Facts) -> list[Finding]:
    told = facts[Shape.MISSING]
    reached = facts[Shape.REACHED]
    if told:
        ranks = {rank for fact in told for rank in fact.ranks}
        victims = {fact.rank for fact in [*told, *reached] if fact.rank is not None} - ranks
        return [
            _finding(
                Kind.MISSING_RANK,
                f"{_ranks_words(ranks)} did not come where others wait: {_short(told[0].text, 70)}",
                [*told, *facts[Shape.NOT_FINISHED], *reached],
                ranks=ranks,
                victims=victims,
                advice=f"see what rank {min(ranks)} did instead: its own log, or its stack next time",
            )
        ]
    if reached:
        # Rank 0 would have named who is late, had it come itself.
        victims = {fact.rank for fact in reached if fact.rank is not None}
        return [
            _finding(
                Kind.MISSING_RANK,
                f"{_ranks_words(victims)} waited for rank 0 at a barrier to which it did not come",
                reached,
                ranks=(0,),
                victims=victims,
                advice="see what rank 0 did instead: its own log, or its stack next time",
            )
        ]
    if facts[Shape.NOT_FINISHED]:
        waits = facts[Shape.NOT_FINISHED]
        return [
            _finding(
                Kind.MISSING_RANK,
                f"some ranks wait for others: {_short(waits[0].text, 90)}",
                waits,
                advice="see what the ranks do that are not in this list",
            )
        ]
    return []


def _behind(facts: _Facts) -> list[Finding]:
    """Who has called fewer ops than the others of its group, or another op of the same number."""
    findings = []
    groups = {fact.group for fact in facts[Shape.PROGRESS] + facts[Shape.TIMEOUT] if fact.seq}
    for group in sorted(groups):
        timeouts = [f for f in facts[Shape.TIMEOUT] if f.group == group and f.seq]
        called: dict[int, int] = {}
        for fact in [f for f in facts[Shape.PROGRESS] if f.group == group] + timeouts:
            if fact.rank is not None:
                called[fact.rank] = max(called.get(fact.rank, 0), fact.seq)
        where = f" on group '{group}'" if group else ""
        findings += _other_op(timeouts, where, group)
        if findings or len(called) < 2:
            continue
        least, most = min(called.values()), max(called.values())
        blocked = min((fact.seq for fact in timeouts), default=most)
        if least < blocked:
            late = [rank for rank, seq in called.items() if seq < blocked]
            name = next((f.kind for f in timeouts if f.seq == blocked), "op")
            findings.append(
                _finding(
                    Kind.MISSING_RANK,
                    f"{_ranks_words(late)} never called {name} #{blocked}{where}; "
                    f"the last called there is #{least}",
                    [f for f in facts[Shape.PROGRESS] if f.group == group] + timeouts,
                    ranks=late,
                    victims=[rank for rank, seq in called.items() if seq >= blocked],
                    seq=blocked,
                    group=group,
                    advice=f"see what rank {min(late)} did instead: its own log, or its stack next time",
                )
            )
    return findings


def _other_op(timeouts: Sequence[Fact], where: str, group: str) -> list[Finding]:
    by_seq: dict[int, list[Fact]] = defaultdict(list)
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
            text = "; ".join(f"{what} on {_ranks_words(ranks)}" for what, ranks in groups)
            return [
                _finding(
                    Kind.MISMATCH,
                    f"op #{seq}{where} differs: {_short(text, 90)}",
                    mine,
                    ranks={r for _, ranks in groups[1:] for r in ranks} if most_first else (),
                    seq=seq,
                    group=group,
                    advice="make all ranks take the same way through the program up to this op",
                )
            ]
    return []


def _stuck(facts: _Facts) -> list[Finding]:
    stuck = facts[Shape.STUCK]
    if not stuck:
        return []
    ranks = {fact.rank for fact in stuck if fact.rank is not None}
    return [
        _finding(
            Kind.STUCK_RANK,
            f"{_ranks_words(ranks) or 'a rank'}: {_short(stuck[0].text, 90)}",
            stuck,
            ranks=ranks,
            advice="its device or the CUDA driver does not answer: take stacks with py-spy dump --native",
        )
    ]


def _gpu(facts: _Facts) -> list[Finding]:
    return [
        _finding(
            Kind.FAILED_OP,
            f"{f'{fact.line.host}: ' if fact.line.host else ''}{_short(fact.text, 90)}",
            [fact],
            ranks=() if fact.rank is None else (fact.rank,),
            advice="take this host out of the job and look at its GPU",
        )
        for fact in facts[Shape.GPU_ERROR][:4]
    ]


_CAUSES: Final[Sequence[Callable[[_Facts], list[Finding]]]] = (
    _killed_for_memory,
    _gpu,
    _died,
    _port,
    _mismatch,
    _unused,
    _not_joined,
    _missing,
    _behind,
    _stuck,
    _stopped,
)


# ------------------------------------------------------------------------------- consequences


def _consequences(facts: _Facts) -> list[Finding]:
    """One finding per kind of message that something else made."""
    words = {
        Shape.TIMEOUT: "ops timed out",
        Shape.STORE_TIMEOUT: "the store was waited for in vain",
        Shape.PEER_CLOSED: "connections of peers were closed",
        Shape.NCCL_WARN: "NCCL warns",
        Shape.FOLLOWS: "processes ended because of others",
        Shape.ENDED_BY_LAUNCHER: "the launcher ended the rest",
    }
    findings = []
    for shape, text in words.items():
        mine = facts[shape]
        if not mine:
            continue
        who = {fact.rank for fact in mine if fact.rank is not None}
        on = f" on {_ranks_words(who)}" if who else ""
        is_note = shape is Shape.ENDED_BY_LAUNCHER
        findings.append(
            _finding(
                Kind.FAILED_OP,
                f"{text}{on}: {_short(mine[0].text, 80)}",
                mine,
                victims=who,
                seq=mine[0].seq,
                group=mine[0].group,
                severity=Severity.NOTE if is_note else Severity.ERROR,
                advice="look for what came before it; record the job to see who was waited for",
            )
        )
    return findings


# ------------------------------------------------------------------------------- words


def _finding(
    kind: Kind,
    what: str,
    facts: Sequence[Fact],
    *,
    ranks: Iterable[int | None] = (),
    victims: Iterable[int] = (),
    seq: int = 0,
    group: str = "",
    severity: Severity = Severity.ERROR,
    advice: str = "",
    extra: Sequence[Evidence] = (),
) -> Finding:
    blamed = tuple(sorted({rank for rank in ranks if rank is not None}))
    times = [fact.line.wall_ns for fact in facts if fact.line.wall_ns is not None]
    return Finding(
        kind=kind,
        severity=severity,
        what=what,
        ranks=blamed,
        victims=tuple(sorted(set(victims) - set(blamed))),
        group=group,
        seq=seq,
        at_ns=min(times, default=None),
        evidence=(*extra, *(_evidence(fact) for fact in _once(facts)[:_MOST_EVIDENCE])),
        advice=advice,
    )


def _evidence(fact: Fact) -> Evidence:
    text = fact.text if fact.shape is not Shape.MISMATCH else _short(fact.text, 400)
    if fact.rank is not None and not text.startswith(("rank", "local")):
        text = f"rank {fact.rank}: {text}"
    if fact.is_first:
        text += " (the launcher saw it first)"
    return Evidence(
        text=text,
        rank=fact.rank,
        site=fact.site,
        at_ns=fact.line.wall_ns,
        source=fact.line.source,
    )


def _once(facts: Sequence[Fact]) -> list[Fact]:
    """Without the same words of the same rank again; the earliest first where times are known."""
    seen: Counter[tuple[int | None, str]] = Counter()
    kept = []
    for fact in facts:
        seen[fact.rank, fact.text] += 1
        if seen[fact.rank, fact.text] == 1:
            kept.append(fact)
    return kept


def _who(facts: Sequence[Fact], otherwise: str) -> str:
    return _ranks_words({fact.rank for fact in facts if fact.rank is not None}) or otherwise


def _ranks_words(ranks: Iterable[int]) -> str:
    known = set(ranks)
    if not known:
        return ""
    return f"rank{'s' if len(known) > 1 else ''} {format_ranks(known)}"


def _short(text: str, most: int = 100) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."
