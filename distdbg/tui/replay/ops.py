"""The table of ops up to a moment, from the columns: times are exact, not those of buckets. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from distdbg.diagnose.bandwidth import bus_factor, size_of
from distdbg.diagnose.ops import NEVER, NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.record.format import Flag, Status
from distdbg.tui.replay.moments import Moments
from distdbg.view.snapshot import OpRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.int64]

#: Last by less than this is last by chance.
_MIN_LATE_NS: Final = 20_000
_MAX_LATE: Final = 8
#: Where there are more ops, the newest of each rank are looked at.
_MAX_OPS: Final = 4_000_000


@dataclass(slots=True)
class _Sum:
    count: int = 0
    failed: int = 0
    nbytes: int = 0
    bus: float = 0.0
    """Bytes on the bus, of ops whose times are known."""
    moved_ns: int = 0
    took: list[Column] = field(default_factory=list)
    waited: list[Column] = field(default_factory=list)


def op_rows(moments: Moments, at_ns: int) -> tuple[OpRow, ...]:
    """One row per group and kind, those that took longest first."""
    import numpy as np

    session = moments.session
    sums: dict[tuple[int, int], _Sum] = {}
    one_of: dict[tuple[int, int], OpRef] = {}
    most = max(_MAX_OPS // max(len(session.ranks), 1), 1)
    sizes: dict[tuple[int, int, int], tuple[int, float]] = {}
    for rank, log in session.ranks.items():
        ops, own_ns = log.ops, at_ns - log.offset_ns
        count = moments.of(rank).count(at_ns)
        if not count:
            continue
        run = slice(max(0, count - most), count)
        begin = np.frombuffer(ops.issued_ns, dtype=np.int64)[run]
        start = np.frombuffer(ops.started_ns, dtype=np.int64)[run]
        end = np.frombuffer(ops.ended_ns, dtype=np.int64)[run]
        how = np.frombuffer(ops.status, dtype=np.uint8)[run]
        forms = np.frombuffer(ops.form, dtype=np.int32)[run]
        group = np.frombuffer(ops.group, dtype=np.int32)[run].astype(np.int64)
        kinds = np.frombuffer(ops.kind, dtype=np.uint8)[run]
        is_done = (end != NEVER) & (end <= own_ns)
        keys = (group << 8) | kinds
        for key in np.unique(keys[is_done]).tolist():
            mine = is_done & (keys == key)
            place = key >> 8, key & 255
            total = sums.setdefault(place, _Sum())
            one_of.setdefault(place, OpRef(rank, int(np.flatnonzero(mine)[0]) + run.start))
            total.count += int(mine.sum())
            total.failed += int((how[mine] != Status.OK).sum())
            took = end[mine] - begin[mine]
            has_start = start[mine] != NEVER
            waited = np.clip(start[mine] - begin[mine], 0, took)[has_start]
            total.took.append(took)
            total.waited.append(waited)
            for form, times in zip(*np.unique(forms[mine], return_counts=True), strict=True):
                size, factor = _size(session, OpRef(rank, 0), place, int(form), sizes)
                total.nbytes += size * int(times)
                total.bus += size * factor * int(times)
            total.moved_ns += int(took.sum() - waited.sum())
    rows = []
    for (group_at, kind), total in sums.items():
        late = _late(moments, group_at, kind, at_ns)
        name = session.groups[group_at].label if group_at != NONE else ""
        rows.append(
            (
                sum(int(took.sum()) for took in total.took),
                _row(session, name, one_of[group_at, kind], total, late),
            )
        )
    rows.sort(key=lambda pair: (-pair[0], pair[1].group, pair[1].kind))
    return tuple(row for _, row in rows)


def _size(
    session: Session,
    op: OpRef,
    place: tuple[int, int],
    form: int,
    known: dict[tuple[int, int, int], tuple[int, float]],
) -> tuple[int, float]:
    """Bytes of an op, and bus over algorithm bandwidth."""
    key = (*place, form)
    found = known.get(key)
    if found is None:
        from distdbg.record.entries import label_of_kind

        kind = label_of_kind(place[1]) or session.forms[form].kind
        members = len(session.members(place[0])) if place[0] != NONE else 0
        size = size_of(session.forms[form], kind, members)
        found = known[key] = size, bus_factor(kind, members) or 0.0
    return found


def _row(
    session: Session, group: str, one: OpRef, total: _Sum, late: tuple[tuple[int, float], ...]
) -> OpRow:
    import numpy as np

    took, waited = np.concatenate(total.took), np.concatenate(total.waited)
    both = np.percentile(took, (50, 99)) / 1e9
    waits = np.percentile(waited, (50, 99)) / 1e9 if len(waited) else (None, None)
    is_message = session.ranks[one.rank].ops.flags[one.at] & (Flag.MESSAGE | Flag.ASIDE)
    members = 1 if is_message else max(len(total.took), 1)
    return OpRow(
        group=group,
        kind=session.kind_of(one),
        count=round(total.count / members),
        failed=round(total.failed / members) if total.failed >= members else min(total.failed, 1),
        nbytes=round(total.nbytes / members),
        p50_s=float(both[0]),
        p99_s=float(both[1]),
        wait_p50_s=None if waits[0] is None else float(waits[0]),
        wait_p99_s=None if waits[1] is None else float(waits[1]),
        bus_nbytes_per_s=total.bus / total.moved_ns * 1e9
        if total.bus and total.moved_ns > 0
        else None,
        late=late,
    )


def _late(moments: Moments, group: int, kind: int, at_ns: int) -> tuple[tuple[int, float], ...]:
    """The share of the ops in which each rank came last, the worst first."""
    import numpy as np

    session = moments.session
    by_rank = moments.matched.of(group).by_rank
    seqs = moments.matched.of(group).common_seqs()
    if len(by_rank) < 2 or not len(seqs):
        return ()
    ranks = list(by_rank)
    came = np.full((len(ranks), len(seqs)), NEVER, dtype=np.int64)
    is_kind = np.zeros(len(seqs), dtype=bool)
    for line, rank in enumerate(ranks):
        log, mine = session.ranks[rank], by_rank[rank]
        first = seqs.start - mine.first_seq
        at = np.frombuffer(mine.indexes, dtype=np.int32)[first : first + len(seqs)]
        is_there = at >= 0
        issued = np.frombuffer(log.ops.issued_ns, dtype=np.int64)
        came[line, is_there] = issued[at[is_there]] + log.offset_ns
        if not line:
            is_kind[is_there] = np.frombuffer(log.ops.kind, dtype=np.uint8)[at[is_there]] == kind
    came = came[:, is_kind & (came != NEVER).all(axis=0) & (came.max(axis=0) <= at_ns)]
    if not came.shape[1]:
        return ()
    last = came.argmax(axis=0)
    two = np.partition(came, -2, axis=0)[-2:]
    counts = np.bincount(last[two[1] - two[0] >= _MIN_LATE_NS], minlength=len(ranks))
    order = np.argsort(-counts, kind="stable")[:_MAX_LATE]
    return tuple(
        (ranks[at], float(counts[at] / came.shape[1])) for at in order.tolist() if counts[at]
    )
