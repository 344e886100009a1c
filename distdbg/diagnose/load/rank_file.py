"""Reads one record as a rank of a session: its columns, and their entries in the tables."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from distdbg.diagnose.load.reported import read_found
from distdbg.diagnose.load.tables import Tables
from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE, OTHER_KIND, Ops
from distdbg.diagnose.session import GroupProgress, RankLog, WorkWait
from distdbg.diagnose.wording import say_site
from distdbg.record.columns import UNSET, Columns, OpColumns
from distdbg.record.entries import KIND_LABELS, ContextEntry, FindingEntry, RecordHeader, StateEntry
from distdbg.record.format import Aside, Flag, Status
from distdbg.record.rank_words import read_exit_text
from distdbg.record.reader import RecordFile

_KNOWN: Final = {*range(len(KIND_LABELS)), *Aside}
_KINDS: Final = bytes(kind if kind in _KNOWN else OTHER_KIND for kind in range(256))
_IS_MESSAGE: Final = bytes(bool(flags & Flag.MESSAGE) for flags in range(256))
assert UNSET == NEVER


@dataclass(slots=True)
class RankFile:
    """A record that was read, and what only its loading needs."""

    log: RankLog
    header: RecordHeader
    state: StateEntry
    unreadable: int = 0
    """How many of its events are damaged."""


def read_rank(path: Path, tables: Tables) -> RankFile:
    """Read one record; RecordError when nothing of it can be read."""
    with RecordFile(path, salvage=True) as record:
        columns = record.columns(parsed=tables.parsed)
    header, state = columns.header, columns.state
    indexes = tables.groups_of(columns.groups)
    ops = to_ops(columns.ops, indexes, tables)
    exit_text = read_exit_text(state.exit_text or "")
    errors = [(ops.issued_ns[at], text) for at, text in ops.errors.items()]
    log = RankLog(
        rank=header.rank,
        host=header.host,
        pid=header.pid,
        argv=header.argv,
        source=str(path),
        began_ns=header.monotonic_ns,
        heartbeat_ns=state.heartbeat_ns,
        level=state.level,
        ops=ops,
        progress={
            indexes[number]: GroupProgress(
                issued_seq=far.issued_seq,
                ended_seq=far.ended_seq,
                closed_ns=far.closed_ns,
                closed_at=say_site(far.closed_at),
                broken=far.broken,
            )
            for number, far in columns.progress.items()
        },
        work_waits=_work_waits(state, ops, tables),
        notes=tuple(e for e in columns.events if not isinstance(e, FindingEntry | ContextEntry)),
        contexts=tuple(e for e in columns.events if isinstance(e, ContextEntry)),
        found=read_found((e for e in columns.events if isinstance(e, FindingEntry)), errors),
        exit=state.exit,
        exit_ns=NEVER if state.exit is None else state.exit_ns,
        exit_what=exit_text.what,
        exit_where=exit_text.where,
        exit_hint=exit_text.hint,
        exit_handled=exit_text.handled,
        lost=_lost(columns),
    )
    return RankFile(log, header, state, len(columns.gaps))


def to_ops(columns: OpColumns, groups: dict[int, int], tables: Tables) -> Ops:
    """The columns of a record as those of a session."""
    group = _translate(
        columns.group, {number: groups.get(number, NONE) for number in columns.groups}
    )
    forms = {number: tables.form(form) for number, form in columns.forms.items()}
    stacks = {number: tables.stack(stack) for number, stack in columns.stacks.items()}
    comms = {number: tables.comm(comm) for number, comm in columns.comms.items()}
    form = _translate(columns.form, forms)
    for at, taken in columns.parked_forms.items():
        form[at] = tables.form(taken)
    status, source = _outcomes(columns)
    ops = Ops(
        number=columns.number,
        issued_ns=columns.issued_ns,
        started_ns=columns.started_ns,
        ended_ns=columns.ended_ns,
        seq=columns.seq,
        group=group,
        kind=array("B", columns.kind.translate(_KINDS)),
        flags=array("B", columns.flags),
        status=status,
        peer=columns.peer,
        source=source,
        tag=columns.tag,
        form=form,
        stack=_translate(columns.site, stacks),
        thread=array("q", columns.thread),
        fingerprint=columns.fingerprint,
        comm=_translate(columns.comm, comms),
        errors=columns.errors,
    )
    _to_global_ranks(ops, columns, tables)
    return ops


def _translate(column: Sequence[int], table: dict[int, int]) -> array[int]:
    return array("i", map(table.__getitem__, column))


def _outcomes(columns: OpColumns) -> tuple[array[int], array[int]]:
    """Status and source of each op; an op whose end is damaged has ended all the same."""
    known = set(columns.outcome)
    statuses = {outcome: min(outcome & 0xFF, OTHER_KIND) for outcome in known}
    statuses[-1] = int(Status.OK)
    status = array("B", map(statuses.__getitem__, columns.outcome))
    at = columns.has_ended.find(0)
    while at >= 0:
        status[at] = IN_FLIGHT
        at = columns.has_ended.find(0, at + 1)
    if max(known, default=0) < 256:
        return status, array("i", [NONE]) * len(columns)
    most = 2**31 - 1
    return status, array("i", [min(max((o >> 8) - 1, NONE), most) for o in columns.outcome])


def _to_global_ranks(ops: Ops, columns: OpColumns, tables: Tables) -> None:
    """A record has group ranks. Of a group whose members nobody states they stay what they are."""
    is_message = columns.flags.translate(_IS_MESSAGE)
    at = is_message.find(1)
    while at >= 0:
        ranks = tables.session.groups[ops.group[at]].ranks if ops.group[at] != NONE else ()
        for column in (ops.peer, ops.source):
            if 0 <= column[at] < len(ranks):
                column[at] = ranks[column[at]]
        at = is_message.find(1, at + 1)


def _work_waits(state: StateEntry, ops: Ops, tables: Tables) -> tuple[WorkWait, ...]:
    """The threads that wait for an op in flight; one that has ended lets its thread go."""
    if not state.work_waits:
        return ()
    ended = {n for n, status in zip(ops.number, ops.status, strict=True) if status != IN_FLIGHT}
    return tuple(
        WorkWait(
            thread=wait.thread,
            number=wait.number,
            since_ns=wait.since_ns,
            stack=tables.stack(wait.stack),
            is_limited=wait.is_limited,
        )
        for wait in state.work_waits
        if wait.number not in ended
    )


def _lost(columns: Columns) -> dict[str, int]:
    state = columns.state
    lost = {
        "ops": columns.overwritten,
        "strings": state.lost_strings,
        "sites": state.lost_sites,
        "parked": state.lost_parked,
        "waits": state.lost_waits,
        "counters": state.lost_counters,
        "gaps": len(columns.gaps),
    }
    return {what: count for what, count in lost.items() if count}
