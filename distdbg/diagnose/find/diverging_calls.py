"""Wording of where the calls of a rank with fewer ops diverge from those of the others (`divergence`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.divergence import CallSign, FirstDifference, find_parting
from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.matching import GroupOps, Matched
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.wording import say_op, say_ranks, site_of, verb

NAME_STEPS: Final = Advice(
    "name the steps with dist.mark('step', i): then the record shows where they diverge",
    Trait.NO_MARKS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceText:
    """The words of a finding about the place where calls diverge."""

    head: str = ""
    """A clause of its own: 'rank 1 skipped one call after #3'."""
    tail: str = ""
    """The end of a first line: ': it skipped one call after #3'."""
    evidence: tuple[Evidence, ...] = ()
    advice: str = ""
    seq: int = 0
    """The first call that can be distinguished; 0: none."""
    extra: str = ""
    """Where most ranks agree on fewer calls: 'rank 1 made one more call after #3'."""


def tell_parting(
    session: Session,
    matched: Matched,
    group: int,
    fewer: Sequence[int],
    more: Sequence[int],
    *,
    is_over: bool,
    ended_at: str = "",
) -> DifferenceText:
    """Compare the first rank of `fewer` with the first of `more`.

    `is_over`: they call nothing more, so that it is worth saying that nothing tells them apart.
    `ended_at`: the line at which the program of the first rank of `fewer` ended itself.
    """
    rank, other = fewer[0], more[0]
    made, others = _made(session, rank, group), _made(session, other, group)
    parting = find_parting(
        session, matched.of(group), group, rank, other, skipped=max(others - made, 0)
    )
    if parting is None:
        return DifferenceText()
    if not parting.seq:
        if not is_over or not parting.is_open:
            return DifferenceText()
        return _alike(session, matched, group, fewer, more, parting, ended_at)
    after = f"after #{parting.seq - 1}" if parting.seq > 1 else "before its first"
    probably = "" if parting.is_sure else "probably "
    extra = ""
    if parting.skipped:
        count = "one call" if parting.skipped == 1 else f"{parting.skipped} calls"
        if is_over:  # who is late may still call it
            extra = _extra(fewer, more, parting.skipped, f" {probably}{after}")
        tail = f": {verb(fewer, 'it', 'they')} {probably}skipped {count} {after}"
    else:
        tail = f": other calls since #{parting.seq}"
    return DifferenceText(
        tail=tail,
        evidence=(
            _counted(session, matched, group, fewer, more),
            _sign(session, parting),
        ),
        advice=f"see what {say_ranks(more if extra else fewer, 3)} did differently {after}",
        seq=parting.seq,
        extra=extra,
    )


def _extra(fewer: Sequence[int], more: Sequence[int], count: int, where: str = "") -> str:
    """'' unless the ranks that made more calls are the smaller side."""
    if len(more) >= len(fewer):
        return ""
    return f"{say_ranks(more, 3)} made {'one more call' if count == 1 else f'{count} more calls'}{where}"


def tell_parting_before(
    session: Session, ops: GroupOps, group: int, odd: Sequence[int], other: int, seq: int
) -> DifferenceText:
    """Where the calls of ranks that differ at `seq` were shifted already, though they still fitted."""
    for rank, against, words in (
        (odd[0], other, "skipped one call"),
        (other, odd[0], "made one call more than the others"),
    ):
        parting = find_parting(session, ops, group, rank, against, skipped=1, before=seq)
        if parting is None or not parting.seq or not parting.skipped or not parting.is_sure:
            continue
        after = f"after #{parting.seq - 1}" if parting.seq > 1 else "before its first"
        return DifferenceText(
            head=f"{say_ranks(odd, 3)} {words} {after}",
            evidence=(_sign(session, parting),),
            advice=f"see what {say_ranks(odd, 3)} did differently {after}",
            seq=parting.seq,
        )
    return DifferenceText()


def _made(session: Session, rank: int, group: int) -> int:
    far = session.ranks[rank].progress.get(group)
    return 0 if far is None else far.issued_seq


def _counted(
    session: Session, matched: Matched, group: int, fewer: Sequence[int], more: Sequence[int]
) -> Evidence:
    """'rank 1 made 19 all_reduces on group 'world' where ranks 0,2 made 20'."""
    ops = matched.of(group)
    kinds = {
        session.kind_of(OpRef(rank, at))
        for rank in (fewer[0], more[0])
        if (mine := ops.by_rank.get(rank)) is not None
        for at in mine.indexes
        if at >= 0
    }
    made, others = _made(session, fewer[0], group), _made(session, more[0], group)
    name = kinds.pop() if len(kinds) == 1 else "op"
    label = session.groups[group].label
    plural = "" if made == 1 else "s"
    text = (
        f"{say_ranks(fewer)} made {made} {name}{plural} on group '{label}'"
        f" where {say_ranks(more)} made {others}"
    )
    return Evidence(text=text, rank=fewer[0], ranks=tuple(fewer))


def _alike(
    session: Session,
    matched: Matched,
    group: int,
    fewer: Sequence[int],
    more: Sequence[int],
    parting: FirstDifference,
    ended_at: str,
) -> DifferenceText:
    which = (
        f"#{parting.first}" if parting.first == parting.last else f"#{parting.first}-{parting.last}"
    )
    where = f" at {ended_at}" if ended_at else ""
    lost = "" if parting.first == 1 else "; earlier calls are no longer in the record"
    text = (
        f"calls {which} of rank {parting.rank} and rank {parting.other} cannot be distinguished (lines,"
        f" arrays, marks, spans, times): rank {parting.rank} skipped one of them, or ended early{where}{lost}"
    )
    if isinstance(parting.stopped, tuple):
        name, value = parting.stopped
        at = _at(name, value, is_mark=True)
        text = (
            f"at call #{parting.last} ranks {parting.rank} and {parting.other} are both at {at}: "
            f"{say_ranks(fewer)} skipped none before, and {verb(fewer, 'stops', 'stop')} there"
        )
    count = _made(session, more[0], group) - _made(session, fewer[0], group)
    extra = _extra(fewer, more, count)
    if extra:  # the ranks that agree skipped nothing
        text = text.partition(f": rank {parting.rank} skipped")[0] + lost
    evidence = (
        _counted(session, matched, group, fewer, more),
        Evidence(text=text, rank=parting.rank),
    )
    if not extra and isinstance(parting.stopped, tuple):
        advice = f"see what ends the loop of {say_ranks(fewer, 3)} before that of the others"
        return DifferenceText(evidence=evidence, advice=advice)
    if not extra:
        return DifferenceText(evidence=evidence, advice=NAME_STEPS)
    return DifferenceText(
        evidence=evidence,
        advice=f"look at how often {say_ranks(more, 3)} calls it: {say_ranks(fewer, 3)} agree on fewer calls",
        extra=extra,
    )


def _sign(session: Session, parting: FirstDifference) -> Evidence:
    rank, other, seq = parting.rank, parting.other, parting.seq
    start = "" if seq > parting.first or seq == 1 else " or before the record begins"
    missed = ""
    if parting.skipped and parting.other_op is not None:
        more = "" if parting.skipped == 1 else f" and {parting.skipped - 1} more"
        missed = f": rank {rank} did not make {say_op(session, parting.other_op)}{more}"
    before = f"between #{seq - 1} and #{seq}"
    match parting.sign:
        case CallSign.MARK | CallSign.GROUPS if isinstance(parting.mine, tuple):
            name, mine = parting.mine
            theirs = parting.theirs[1] if isinstance(parting.theirs, tuple) else None
            is_mark = parting.sign is CallSign.MARK
            text = (
                f"they diverge at #{seq}{start}: there rank {rank} was at {_at(name, mine, is_mark)}, "
                f"rank {other} at {_at(name, theirs, is_mark)}"
            )
        case CallSign.SPANS | CallSign.MESSAGES:
            name = "marks and spans" if parting.sign is CallSign.SPANS else "messages"
            text = (
                f"they diverge {before}: rank {rank} has {_number(parting.mine)} {name} there, "
                f"rank {other} {_number(parting.theirs)}"
            )
        case CallSign.TIME:
            times = f"{parting.skipped + 1} times"
            text = (
                f"probably they diverge {before}: rank {rank} took about {times} as long there as "
                f"between its other calls, rank {other} did not"
            )
        case CallSign.CALL:
            text = f"their arrays diverge at #{seq}{start}{missed}"
        case _:
            mine = f" ({_place(session, parting.op)} on rank {rank}, "
            theirs = f"{_place(session, parting.other_op)} on rank {other})"
            where = mine + theirs if parting.sign is CallSign.LINE else ""
            text = f"their lines diverge at #{seq}{start}{where}{missed}"
    site = site_of(session, parting.op) if parting.op is not None else ""
    return Evidence(text=text, rank=rank, op=parting.op, site=site)


def _at(name: object, value: object, is_mark: bool) -> str:
    """'mark step 4', '#7 of group 'dp''."""
    return f"mark {name} {_number(value)}" if is_mark else f"#{_number(value)} of group '{name}'"


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else "not set"


def _place(session: Session, op: OpRef | None) -> str:
    return (site_of(session, op) if op is not None else "") or "an unknown line"
