"""The entries of one rank, as torch's flight recorder has them. Pure.

    entries = Entries(session, sides, log)
    for entry in entries: ...
    entries.groups()             when all entries have been made

One op is one entry. `collective_seq_id` is the number by which torch's analyzer finds the other sides, and
it looks for those on all members of the entry's group. That does not fit a message, which has two sides: so
the messages of one direction are a group of their own, '0[2->3]', with the two ranks as members. `of_group`
says what group they were sent on. `record_id` counts what is written; torch drops what has a smaller one
than the first of any rank, which here is 0 on all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

from distdbg.diagnose.load.torch_groups import OF_GROUP
from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE, OTHER_KIND
from distdbg.diagnose.session import RankLog, Session
from distdbg.export.torch_fr.spelling import COLLECTIVES, to_call
from distdbg.export.torch_fr.whole_ops import FlightRecorderSides, MessageNumbering
from distdbg.record.entries import KIND_LABELS, label_of_kind
from distdbg.record.format import Flag, Status

#: torch's recorder writes this for the only library that its analyzer knows all kinds of.
_LIBRARY: Final = "nccl"
_SEND: Final = KIND_LABELS.index("send")

Entry = dict[str, Any]
#: Index of a group; of a message sender and receiver too, and the tag where each has its own numbers.
_Place = tuple[int, int, int, int | None]


def unreadable(log: RankLog) -> frozenset[int]:
    """The indexes of collectives of which too little is known to show them."""
    ops = log.ops
    if 0 not in ops.form and OTHER_KIND not in ops.kind:
        return frozenset()
    both = zip(ops.form, ops.kind, strict=True)
    return frozenset(at for at, (form, kind) in enumerate(both) if not form or kind == OTHER_KIND)


class Entries:
    """Iterated once."""

    def __init__(self, session: Session, sides: FlightRecorderSides, log: RankLog) -> None:
        self._session = session
        self._sides = sides
        self._log = log
        self._unreadable = unreadable(log)
        self._used: dict[_Place, int] = {}
        """pg_id of each group that has entries, or that the rank is a member of."""
        self._fixed: dict[tuple[int, int, int, _Place], Entry] = {}
        self._frames: dict[int, list[Entry]] = {}
        self._counts: defaultdict[_Place, int] = defaultdict(int)
        self.left_out: Counter[str] = Counter()
        """What is not there, by why."""
        for group in sorted(log.progress):
            if session.groups[group].ranks:
                self._pg_id((group, NONE, NONE, None))

    def __iter__(self) -> Iterator[Entry]:
        record_id = 0
        for at in range(len(self._log.ops)):
            found = self._find_place(at)
            if found is None:
                continue
            place, seq = found
            yield self._entry(at, place, seq, record_id)
            record_id += 1

    # ------------------------------------------------------------------------ which, and where

    def _find_place(self, at: int) -> tuple[_Place, int] | None:
        """The group and number by which an op's other sides are found; None: it is left out."""
        ops = self._log.ops
        flags, group = ops.flags[at], ops.group[at]
        kind = label_of_kind(ops.kind[at])
        if flags & Flag.ASIDE or not (flags & Flag.MESSAGE or kind in COLLECTIVES):
            return self._leave_out(f"{kind or 'ops of kinds'} that torch has no name for")
        if at in self._unreadable:
            return self._leave_out("ops whose words are damaged or overwritten")
        if group == NONE or not self._session.groups[group].ranks:
            return self._leave_out("ops of groups whose members cannot be read")
        if flags & Flag.MESSAGE:
            return self._find_message(at, group)
        if not self._sides.is_known(group, ops.seq[at]):
            return self._leave_out("ops that another rank's record or this one's has lost")
        return (group, NONE, NONE, None), ops.seq[at]

    def _find_message(self, at: int, group: int) -> tuple[_Place, int] | None:
        ops, rank = self._log.ops, self._log.rank
        if ops.kind[at] == _SEND:
            sender, receiver = rank, ops.peer[at]
        else:
            source = ops.source[at]
            sender, receiver = ops.peer[at] if source == NONE else source, rank
        if NONE in (sender, receiver):
            return self._leave_out("recv from any rank that nothing had come to")
        way: MessageNumbering | None = self._sides.way(group, sender, receiver)
        if way is None:
            return self._leave_out("messages of which the other side cannot be known")
        place = (group, sender, receiver, ops.tag[at] if way.is_by_order else None)
        seq = ops.seq[at]
        if way.is_by_order:
            self._counts[place] += 1
            seq = self._counts[place]
        elif not way.first <= seq <= way.last:
            return self._leave_out("ops that another rank's record or this one's has lost")
        return place, seq

    def _leave_out(self, why: str) -> tuple[_Place, int] | None:
        self.left_out[why] += 1
        return None

    # ------------------------------------------------------------------------------- one entry

    def _entry(self, at: int, place: _Place, seq: int, record_id: int) -> Entry:
        log, ops = self._log, self._log.ops
        key = ops.kind[at], ops.form[at], ops.stack[at], place
        fixed = self._fixed.get(key)
        if fixed is None:
            fixed = self._fixed[key] = self._make_fixed(at, place)
        entry = fixed.copy()
        is_message = place[1] != NONE
        offset = log.offset_ns
        started, ended = ops.started_ns[at], ops.ended_ns[at]
        status = ops.status[at]
        is_over = status == Status.OK
        entry["record_id"] = record_id
        entry["op_id"] = ops.number[at]
        entry["collective_seq_id"] = seq
        entry["p2p_seq_id"] = seq if is_message else 0
        entry["thread_id"] = str(ops.thread[at])
        entry["time_created_ns"] = ops.issued_ns[at] + offset
        if is_over:
            entry["state"] = "completed"
        else:
            entry["state"] = "scheduled" if started == NEVER else "started"
        entry["retired"] = status != IN_FLIGHT
        entry["time_discovered_started_ns"] = None if started == NEVER else started + offset
        has_end = is_over and ended != NEVER
        entry["time_discovered_completed_ns"] = ended + offset if has_end else None
        if has_end and started != NEVER:
            entry["duration_ms"] = (ended - started) / 1e6
        if is_message:
            entry["tag"] = ops.tag[at]
        return entry

    def _make_fixed(self, at: int, place: _Place) -> Entry:
        """What all ops of one shape and call site have in common."""
        ops, session = self._log.ops, self._session
        group, sender, receiver, _ = place
        kind = label_of_kind(ops.kind[at])
        call = to_call(session.forms[ops.form[at]], kind)
        name = call.name
        entry: Entry = {
            "frames": self._stack(ops.stack[at]),
            "pg_id": self._pg_id(place),
            "process_group": self._name(place),
            "input_sizes": call.inputs,
            "input_dtypes": [call.dtype] * len(call.inputs),
            "output_sizes": call.outputs,
            "output_dtypes": [call.dtype] * len(call.outputs),
            "timeout_ms": 0,
            "is_p2p": sender != NONE,
            **call.extras,
        }
        if sender != NONE:
            ends = sorted((sender, receiver))
            source, target = ends.index(sender), ends.index(receiver)
            arrow = f"{source}->{target}" if kind == "send" else f"{target}<-{source}"
            name = f"{kind} {arrow}"
            entry["peer"] = receiver if kind == "send" else sender
            entry[OF_GROUP] = self._name((group, NONE, NONE, None))
        entry["profiling_name"] = f"{_LIBRARY}:{name}"
        return entry

    def _stack(self, index: int) -> list[Entry]:
        frames = self._frames.get(index)
        if frames is None:
            frames = self._frames[index] = [
                {"name": frame.function, "filename": frame.file, "line": frame.line}
                for frame in self._session.stacks[index]
            ]
        return frames

    # ------------------------------------------------------------------------------- its groups

    def groups(self) -> dict[str, Entry]:
        """What a dump says of the groups that its entries are of."""
        return {"pg_config": self._config(), "pg_status": self._status()}

    def _config(self) -> dict[str, Entry]:
        found = {}
        for place in self._used:
            name, desc = self._name(place)
            group, sender, receiver, _ = place
            entry: Entry = {"name": name, "desc": desc}
            if sender == NONE:
                entry["ranks"] = str(list(self._session.groups[group].ranks))
            else:
                entry["ranks"] = str(sorted((sender, receiver)))
                entry[OF_GROUP] = self._name((group, NONE, NONE, None))[0]
            found[name] = entry
        return found

    def _status(self) -> dict[str, dict[str, int]]:
        """How far each group has come."""
        found = {}
        for place, pg_id in self._used.items():
            progress = self._log.progress.get(place[0])
            if place[1] == NONE and progress is not None:
                found[str(pg_id)] = {
                    "last_enqueued_collective": progress.issued_seq or -1,
                    "last_started_collective": progress.ended_seq or -1,
                    "last_completed_collective": progress.ended_seq or -1,
                }
        return found

    def _pg_id(self, place: _Place) -> int:
        return self._used.setdefault(place, len(self._used))

    def _name(self, place: _Place) -> tuple[str, str]:
        """Name and description, the same on all members: torch wants that."""
        group, sender, receiver, tag = place
        info = self._session.groups[group]
        name = info.name
        desc = "undefined" if info.label == info.name else info.label
        if info.label == "world":
            desc = "default_pg"
        if sender == NONE:
            return name, desc
        way = f"{sender}->{receiver}" + ("" if tag is None else f" tag {tag}")
        return f"{name}[{way}]", f"{info.label} {way}"
