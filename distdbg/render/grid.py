"""The op where it happened, as a table of ranks and ops. Pure.

one row       ranks that did the same, so that thousands of them are a handful of rows
one column    a seq of the group: some before the op in question, and what came after it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.ops import IN_FLIGHT, NONE, OpRef
from distdbg.diagnose.session import RankLog, Session
from distdbg.record.format import NO_COLLECTIVE, Status
from distdbg.record.forms import Shape
from distdbg.render.where import place_of

#: How far back in a rank's ops the columns are looked for.
_MAX_STEPS: Final = 20_000
#: Kinds whose inputs have one shape on all ranks.
_SAME_SHAPES: Final = frozenset({"all_reduce", "reduce", "broadcast"})


class GridCell(StrEnum):
    """What one rank has to do with one op."""

    DONE = "done"
    IN = "in it"
    NOT_COME = "not called"
    DIFFERS = "differs"
    FAILED = "failed"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """Ranks whose cells are the same."""

    ranks: tuple[int, ...]
    cells: tuple[GridCell, ...]
    calls: tuple[str, ...]
    """What it called instead, where it differs; else ''."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Some ops of one group."""

    group: int
    label: str
    seq: int
    """The one in question."""
    seqs: tuple[int, ...]
    names: tuple[str, ...]
    """What most ranks called, by column; '' when no op is left of it."""
    rows: tuple[GridRow, ...]
    """Those to blame first, then the largest."""


def place_of_finding(session: Session, finding: Finding) -> tuple[int, int] | None:
    """Group and seq that it is about, where that is a collective."""
    refs = [fact.op for fact in finding.evidence if fact.op is not None]
    refs += [edge.op for edge in finding.edges if edge.op is not None]
    places = [place for op in refs if (place := _place_of_op(session, op, finding.seq))]
    if not any(_went_wrong(session, op) for op in refs):
        # What went well is named as what came before; those who wait are where it happened.
        waiting = [at for rank in finding.victims[:16] if (at := place_of(session, rank))]
        found = [_place_of_op(session, at.op, finding.seq) for at in waiting]
        if waiting and not any(found):
            return None  # they wait for messages
        places = [place for place in found if place and place[0]] or places
    if places:
        return max(places)[1:]
    if refs or not finding.seq:
        return None
    named = {*finding.ranks, *finding.victims}
    indexes = [i for i, group in enumerate(session.groups) if group.label == finding.group]
    if not indexes:
        return None
    # Groups that were made alike have one label: it is the one with the most of the ranks.
    return max(indexes, key=lambda i: len(named & set(session.members(i)))), finding.seq


def _went_wrong(session: Session, op: OpRef) -> bool:
    """Also a message, which has no place in a table of collectives."""
    log = session.ranks.get(op.rank)
    return log is not None and op.at < len(log.ops) and log.ops.status[op.at] != Status.OK


def _place_of_op(session: Session, op: OpRef, seq: int) -> tuple[bool, int, int] | None:
    """Whether it did not go well, its group and its seq; None for one that is another, or no collective."""
    if op.rank not in session.ranks or op.at >= len(session.ranks[op.rank].ops):
        return None
    ops = session.ranks[op.rank].ops
    if ops.flags[op.at] & NO_COLLECTIVE or ops.group[op.at] == NONE:
        return None
    if seq and ops.seq[op.at] != seq:
        return None
    return ops.status[op.at] != Status.OK, ops.group[op.at], ops.seq[op.at]


def make_grid(
    session: Session, group: int, seq: int, *, blamed: Iterable[int] = (), columns: int = 7
) -> Grid:
    """Around `seq`: most columns before it, at most two after it."""
    members = list(session.members(group)) or sorted(session.ranks)
    reached = [
        session.ranks[r].progress[group].issued_seq
        for r in members
        if r in session.ranks and group in session.ranks[r].progress
    ]
    last = min(max([seq, *reached]), seq + 2)
    # The first is 1; a recorder that lost count may have written less.
    seqs = tuple(range(max(min(1, seq), last - columns + 1), last + 1))
    found = {
        rank: _ops_of(session.ranks[rank], group, seqs) for rank in members if rank in session.ranks
    }
    guilty = set(blamed)
    # What is usual is what those called whom nobody blames.
    judges = {rank: ops for rank, ops in found.items() if rank not in guilty} or found
    usual = [_usual(session, judges, s) or _usual(session, found, s) for s in seqs]
    rows: dict[tuple[tuple[GridCell, ...], tuple[str, ...]], list[int]] = {}
    for rank in members:
        cells, calls = [], []
        for s, call_of_most in zip(seqs, usual, strict=True):
            cell, call = _cell(session, rank, group, s, found.get(rank, {}), call_of_most)
            cells.append(cell)
            calls.append(call)
        rows.setdefault((tuple(cells), tuple(calls)), []).append(rank)
    made = [GridRow(ranks=tuple(sorted(r)), cells=c, calls=t) for (c, t), r in rows.items()]
    made.sort(key=lambda row: (guilty.isdisjoint(row.ranks), -len(row.ranks), row.ranks))
    return Grid(
        group=group,
        label=session.groups[group].label,
        seq=seq,
        seqs=seqs,
        names=tuple(call.name if call else "" for call in usual),
        rows=tuple(made),
    )


def _ops_of(log: RankLog, group: int, seqs: tuple[int, ...]) -> dict[int, int]:
    """Index of the op by seq, looked for from the end."""
    ops = log.ops
    found: dict[int, int] = {}
    for at in range(len(ops) - 1, max(-1, len(ops) - 1 - _MAX_STEPS), -1):
        if ops.group[at] != group or ops.flags[at] & NO_COLLECTIVE:
            continue
        seq = ops.seq[at]
        if seqs[0] <= seq <= seqs[-1]:
            found.setdefault(seq, at)
        if seq < seqs[0] or len(found) == len(seqs):
            break
    return found


@dataclass(frozen=True, slots=True)
class _Call:
    """What must be equal on all ranks, as far as it is known."""

    name: str
    fingerprint: int
    words: tuple[object, ...]
    shown: tuple[str, ...] = field(default=(), compare=False)
    """Inputs, op, root, outputs: the first of them that is another one is shown."""

    def distinguish_from(self, other: _Call) -> str:
        """Tell in what a call differs: 'broadcast', 'op max', 'float32[1023]'; '' when no form shows it."""
        if self.name != other.name:
            return self.name
        pairs = zip(self.shown, other.shown, strict=True)
        return next((mine for mine, theirs in pairs if mine != theirs), "")

    def differs(self, other: _Call) -> bool:
        if self.name != other.name:
            return True
        if self.fingerprint and other.fingerprint:
            return self.fingerprint != other.fingerprint
        return self.words != other.words


def _call(session: Session, rank: int, at: int) -> _Call:
    ops = session.ranks[rank].ops
    form = session.forms[ops.form[at]]
    kind = session.kind_of(OpRef(rank, at))
    shapes = form.inputs.items if kind in _SAME_SHAPES else ()
    words = (form.dtype, form.op, form.root, shapes)
    shown = (
        _arrays_text(form.dtype, form.inputs.items),
        f"op {form.op}" if form.op else "",
        "" if form.root is None else f"root {form.root}",
        _arrays_text(form.dtype, form.outputs.items),
    )
    return _Call(form.name or kind, ops.fingerprint[at], words, shown)


def _usual(session: Session, found: dict[int, dict[int, int]], seq: int) -> _Call | None:
    """What most ranks called."""
    calls = Counter(_call(session, rank, ops[seq]) for rank, ops in found.items() if seq in ops)
    return calls.most_common(1)[0][0] if calls else None


def _cell(
    session: Session, rank: int, group: int, seq: int, found: dict[int, int], usual: _Call | None
) -> tuple[GridCell, str]:
    log = session.ranks.get(rank)
    if log is None:
        return GridCell.UNKNOWN, ""
    if seq not in found:
        far = log.progress.get(group)
        if far is None:
            return GridCell.UNKNOWN, ""
        if far.ended_seq >= seq:
            return GridCell.DONE, ""
        return (GridCell.IN, "") if far.issued_seq >= seq else (GridCell.NOT_COME, "")
    at = found[seq]
    mine, status = _call(session, rank, at), log.ops.status[at]
    if usual is not None and mine.differs(usual):
        return GridCell.DIFFERS, mine.distinguish_from(usual)
    if status == IN_FLIGHT:
        return GridCell.IN, ""
    return (GridCell.DONE if status == Status.OK else GridCell.FAILED), ""


def _arrays_text(dtype: str, shapes: Sequence[Shape]) -> str:
    return " ".join(f"{dtype}[{','.join(map(str, shape))}]" for shape in shapes[:2]) or dtype
