"""Findings from logs about ranks that called something else, or nothing, where others wait."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind
from distdbg.diagnose.load.log_facts import FactShape, LoggedFact
from distdbg.diagnose.load.log_wording import (
    MAX_EVIDENCE,
    Facts,
    make_finding,
    say_ranks,
    say_who,
    shorten,
)
from distdbg.diagnose.load.torch_names import kind_of

_FINGERPRINT: Final = re.compile(
    r"Rank (\d{1,7}) is running collective: CollectiveFingerPrint\("
    r"SequenceNumber=(\d{1,18})(?:, )?OpType=([A-Za-z_0-9]{1,40})"
    r"(?:, TensorShape=\[([\d, ]{0,200})\])?(?:, TensorDtypes=([A-Za-z0-9]{1,20}))?"
)
#: By number, as torch counts its ops.
_OP_TYPES: Final = (
    "BROADCAST", "ALLREDUCE", "ALLREDUCE_COALESCED", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE",
    "ALLGATHER_COALESCED", "GATHER", "SCATTER", "REDUCE_SCATTER", "ALLTOALL_BASE", "ALLTOALL", "SEND",
    "RECV", "RECVANYSOURCE", "BARRIER", "_REDUCE_SCATTER_BASE", "COALESCED", "_ALLREDUCE_SPARSE",
    "REDUCE_SCATTER_TENSOR_COALESCED",
)  # fmt: skip
#: Op, seq and number of arrays; each array adds its dtype, device, number of dimensions, and sizes.
_BARE_LENGTH: Final = 3
_ARRAY_LENGTH: Final = 6


def find_mismatches(facts: Facts) -> list[Finding]:
    findings = []
    reported = facts[FactShape.MISMATCH]
    if reported:
        findings.append(_sides_differ(reported))
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


def _sides_differ(reported: Sequence[LoggedFact]) -> Finding:
    """All ranks' words together: what a rank says of itself is true, what another says may be made up."""
    own: dict[int, _LoggedCall] = {}
    for fact in reported:
        for index, side in enumerate(_read_sides(fact.text)):
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
        reported,
        ranks=blamed,
        victims=() if blamed else tuple(own),
        seq=seq,
        extra=[
            Evidence(text=f"rank {rank} called {side.what}", rank=rank)
            for rank, side in sorted(own.items())
        ][:MAX_EVIDENCE],
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
    reported = facts[FactShape.MISSING]
    reached = facts[FactShape.REACHED]
    if reported:
        ranks = {rank for fact in reported for rank in fact.ranks}
        victims = {fact.rank for fact in [*reported, *reached] if fact.rank is not None} - ranks
        return [
            make_finding(
                FindingKind.MISSING_RANK,
                f"{say_ranks(ranks)} did not arrive where others wait: {shorten(reported[0].text, 70)}",
                [*reported, *facts[FactShape.NOT_FINISHED], *reached],
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
    """Find who has called fewer ops than the others of its group, or another op of the same number."""
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


@dataclass(frozen=True, slots=True)
class _LoggedCall:
    """What one rank is said to have called."""

    rank: int
    kind: str
    """'' when the message does not know."""
    seq: int
    shape: str
    dtype: str
    dimensions: int | None = None
    """Dimensions of an array whose op and sizes the message lost; -1: no array at all."""

    @property
    def what(self) -> str:
        """'all_reduce of float[4]'."""
        if self.kind:
            dtype = self.dtype.lower()
            array = f" of {dtype}[{self.shape}]" if self.shape or dtype else ""
            return f"{self.kind}{array}"
        if self.dimensions == -1:
            return "an op without an array, such as a barrier"
        return f"an op on an array of {self.dimensions} dimensions"


def _read_sides(text: str) -> list[_LoggedCall]:
    """Both sides of the message; [] for what is none."""
    return [_side(*found) for found in _FINGERPRINT.findall(text)]


def _side(rank: str, seq: str, op: str, shape: str, dtype: str) -> _LoggedCall:
    if int(seq) == 0 and not shape and not dtype and op in _OP_TYPES:
        length = _OP_TYPES.index(op)
        if length == _BARE_LENGTH:
            return _LoggedCall(int(rank), "", 0, "", "", dimensions=-1)
        if length >= _ARRAY_LENGTH:
            return _LoggedCall(int(rank), "", 0, "", "", dimensions=length - _ARRAY_LENGTH)
    return _LoggedCall(int(rank), kind_of(op), int(seq), shape.strip(), dtype)
