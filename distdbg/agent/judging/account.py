"""Accounts: ops in flight and progress of one host, made there and read by the root's agent.

    {"now": 81.., "host": "n14", "world": 8, "ranks": [row, ..], "forms": ["{..}", ..],
     "groups": [[name, label, ranks, backend], ..], "stacks": [[[file, line, function], ..], ..],
     "found": [{"type": "LeakedWork", "rank": 3, "what": ..}, ..]}

Only what is in flight is in it, and how far the groups have come. Times are those of the host, `now` among
them. An account is bounded: of a rank with more in flight than is kept the row says so (`cut`), and then
nothing is proven of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from distdbg.agent.judging.stuck_thresholds import patient_state
from distdbg.diagnose.wording import say_site
from distdbg.errors import RecordError
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.entries import Group, OpEntry
from distdbg.record.format import Flag
from distdbg.record.forms import Form, write_form
from distdbg.record.known_marks import LATENT
from distdbg.record.printable import shorten
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame

Account = dict[str, Any]
Row = dict[str, Any]

_MAX_OPS: Final = 64
_MAX_GROUPS: Final = 256
_MAX_FRAMES: Final = 12
_MAX_THREADS: Final = 1024
_MAX_FOUND: Final = 16
_MAX_DETAILS: Final = 4
_MAX_LETTERS: Final = 300
_FOUND: Final = (
    "type", "rank", "what", "at_ns", "group", "seq", "kind", "ranks", "how", "details", "hint",
)  # fmt: skip
_NONE: Final = -1
_MOVING: Final = (RankState.RUNNING, RankState.STARTING)

_Ranks = tuple[int, ...]


class AccountMaker:
    """Makes the accounts of one host; what a rank stood in is kept until it moves."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._known: dict[int, tuple[object, _Draft]] = {}

    def make(self, watched_ranks: Iterable[WatchedRank], now_ns: int) -> Account:
        """The account of these ranks now."""
        tables = _Tables()
        watched_ranks = list(watched_ranks)
        rows = [self._row(watched, tables, now_ns) for watched in watched_ranks]
        world = max(
            (s.record.header.world_size for s in watched_ranks if s.record is not None), default=0
        )
        return {
            "now": now_ns,
            "host": self.host,
            "world": world,
            **tables.plain(),
            "ranks": rows,
        }

    def forget(self) -> None:
        self._known.clear()

    def _row(self, watched: WatchedRank, tables: _Tables, now_ns: int) -> Row:
        row: Row = {
            "rank": watched.rank,
            "pid": watched.pid,
            "state": str(patient_state(watched, now_ns)),
            # A rank that runs does something new with each op.
            "since": max(watched.since_ns, watched.progress_ns if watched.state in _MOVING else 0),
            "moved": watched.progress_ns,
        }
        if str(watched.state) != row["state"]:
            row["seen"] = str(watched.state)  # it may be at work in that
        if watched.longest_gap_ns:
            row["gap"] = watched.longest_gap_ns
        if watched.was is not None:
            row["was"] = [str(watched.was.state), *watched.was[1:]]
        if watched.why:
            row["why"] = watched.why
        if watched.site:
            row["site"] = watched.site
        row |= _of_joining(watched)
        if watched.end is not None:
            row["end"] = json.loads(watched.end.to_json())
        if watched.pulse is not None:
            row["last"] = watched.pulse.last_number
        draft = self._draft(watched)
        if draft is not None:
            draft.write(row, tables)
        return row

    def _draft(self, watched: WatchedRank) -> _Draft | None:
        if watched.record is None:
            return None
        key = (id(watched.record), watched.pulse, watched.state, watched.pid)
        known = self._known.get(watched.rank)
        is_still = watched.state is RankState.WAITING or watched.is_gone
        if known is not None and known[0] == key and is_still:
            return known[1]
        try:
            draft = _Draft(watched)
        except RecordError:
            return None
        self._known[watched.rank] = key, draft
        return draft


def _of_joining(watched: WatchedRank) -> Row:
    """The row of a rank without a record: its call of init_process_group, or what it does instead."""
    if watched.is_joining and watched.join is not None:
        return {"join": json.loads(watched.join.to_json())}
    if watched.state is RankState.STARTING and watched.starts_in is not None:
        return {"starts": str(watched.starts_in)}
    return {}


class _Tables:
    """What rows share."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str, str], int] = {}
        self._stacks: dict[tuple[RecordedFrame, ...], int] = {(): 0}
        self._forms: dict[str, int] = {"": 0}

    def group(self, words: tuple[str, str, str, str]) -> int:
        return self._groups.setdefault(words, len(self._groups))

    def stack(self, frames: tuple[RecordedFrame, ...]) -> int:
        return self._stacks.setdefault(frames[:_MAX_FRAMES], len(self._stacks))

    def form(self, text: str) -> int:
        return self._forms.setdefault(text, len(self._forms))

    def plain(self) -> dict[str, Any]:
        return {
            "groups": [list(words) for words in self._groups],
            "stacks": [[list(frame) for frame in stack] for stack in self._stacks],
            "forms": list(self._forms),
        }


class _Draft:
    """What a record says of its rank, before it is put into tables."""

    def __init__(self, watched: WatchedRank) -> None:
        record = watched.record
        assert record is not None
        current_ops = watched.current_ops
        self.groups = current_ops.groups if current_ops and watched.is_exact else record.groups()
        self.names = name_groups(group for group, _ in self.groups)
        # A rank that moves can go on: what it is in is of no use when it is read of.
        is_still = watched.state is RankState.WAITING
        ops = list(current_ops.in_flight) if is_still and current_ops else []
        if not ops and current_ops is not None and current_ops.prompt is not None:
            ops = [current_ops.prompt]  # also of a rank that was killed there
        self.waits = current_ops.waits if is_still and current_ops else ()
        awaited = {wait.number for wait in self.waits}
        kept = [op for op in ops if not op.is_async or op.number in awaited]
        rest = [op for op in ops if op.is_async and op.number not in awaited]
        self.is_cut = len(ops) > _MAX_OPS or len(self.groups) > _MAX_GROUPS
        self.ops = sorted(
            [*kept, *rest][:_MAX_OPS],
            key=lambda op: op.number,
        )
        self.past = record.past() if is_still else None
        self.threads = _threads_of(watched.pid) if is_still else []
        self.level = record.state().level if is_still else 0
        self.exit, self.exit_words = (
            record.state_words() if watched.pulse and watched.pulse.exit_word else (None, "")
        )

    def write(self, row: Row, tables: _Tables) -> None:
        places: dict[int, int] = {}
        far = []
        for group, progress in self.groups[-_MAX_GROUPS:]:
            words = (self.names[group.number], group.desc or group.name, group.ranks, group.backend)
            place = places[group.number] = tables.group(words)
            cell: list[Any] = [place, progress.issued_seq, progress.ended_seq]
            if progress.closed_ns is not None or progress.broken is not None:
                cell += [progress.closed_ns, progress.broken, say_site(progress.closed_at)]
            far.append(cell)
        row["progress"] = far
        if self.ops:
            row["ops"] = [_plain_op(op, places, tables) for op in self.ops]
        if self.waits:
            row["waits"] = [
                [wait.thread, wait.number, wait.since_ns, tables.stack(wait.stack), wait.is_limited]
                for wait in self.waits
            ]
        if self.threads:
            row["threads"] = self.threads
        if self.past is not None:
            row["issuers"] = sorted(self.past.issuers)[:_MAX_THREADS]
            if self.past.is_whole:
                row["asides"] = [
                    [places[group], kind, seq]
                    for (group, kind), seq in self.past.asides.items()
                    if group in places
                ]
        if self.is_cut:
            row["cut"] = True
        if self.exit is not None:
            row["exit"] = [self.exit, self.exit_words]
        row["level"] = self.level


def latent_of(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What ranks have found: leaked work and groups, arrays in two ops. Few and short, for other hosts."""
    latent = [one for one in found if one.get("type") in LATENT]
    return [
        {name: _short(one[name]) for name in _FOUND if one.get(name)}
        for one in latent[-_MAX_FOUND:]
    ]


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return shorten(value, _MAX_LETTERS)
    return [_short(one) for one in value[:_MAX_DETAILS]] if isinstance(value, list) else value


def without_ops(account: Account) -> Account:
    """What is left of one that is too long: who is stuck, who is gone, who else there is."""
    kept = (
        "rank",
        "pid",
        "state",
        "since",
        "moved",
        "why",
        "site",
        "end",
        "exit",
        "seen",
        "gap",
        "was",
    )
    rows = [
        {name: row[name] for name in kept if name in row} | {"cut": True}
        for row in account["ranks"]
    ]
    return {**account, "groups": [], "stacks": [[]], "forms": [""], "ranks": rows}


def name_groups(groups: Iterable[Group]) -> dict[int, str]:
    """Names that are equal on all members: of a group that was made again after its end 'dp~2'."""
    seen: dict[str, int] = {}
    names = {}
    for group in sorted(groups, key=lambda group: group.number):
        count = seen[group.name] = seen.get(group.name, 0) + 1
        names[group.number] = group.name if count == 1 else f"{group.name}~{count}"
    return names


@lru_cache(maxsize=256)
def ranks_of(text: str) -> _Ranks:
    """'0-3,7' as numbers, in that order; () for what is none."""
    ranks: list[int] = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        if not low.isdecimal() or not (high or low).isdecimal():
            return ()
        ranks.extend(range(int(low), int(high or low) + 1))
    return tuple(ranks)


def _plain_op(op: OpEntry, places: dict[int, int], tables: _Tables) -> list[Any]:
    """The op as `live_session` reads it: 13 cells, 0 or -1 where there is nothing."""
    members = ranks_of(op.group.ranks) if op.group is not None else ()
    flags = Flag.ASYNC * op.is_async | Flag.MESSAGE * op.is_message | Flag.ASIDE * op.is_aside
    return [
        op.number,
        op.issued_ns,
        op.started_ns or 0,
        op.seq,
        places.get(op.group_number, _NONE),
        op.kind,
        flags,
        _global(op.peer, members),
        op.tag,
        tables.form(_form_text(op.form)),
        tables.stack(op.stack),
        op.thread,
        op.fingerprint,
    ]


def _global(peer: int | None, members: _Ranks) -> int:
    if peer is None:
        return _NONE
    return members[peer] if peer < len(members) else peer


@lru_cache(maxsize=256)
def _form_text(form: Form | None) -> str:
    if form is None:
        return ""
    return write_form(
        name=form.name,
        kind=form.kind,
        dtype=form.dtype,
        device=form.device,
        op=form.op,
        root=form.root,
        inputs=form.inputs.items,
        outputs=form.outputs.items,
        input_splits=form.input_splits.items,
        output_splits=form.output_splits.items,
        members=form.members.items,
        nbytes=form.nbytes,
        part=form.part,
    ).decode()


def _threads_of(pid: int) -> list[int]:
    """The kernel's numbers of its threads."""
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))[:_MAX_THREADS]
    except OSError:
        return []
