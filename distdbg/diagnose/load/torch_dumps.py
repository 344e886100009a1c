"""Reads dumps of torch's flight recorder, of NCCL or gloo, as a session.

    session = read_torch_dumps([Path("trace_rank_0"), Path("trace_rank_1")])

Ops of different ranks are one by (group, seq), never by record_id, which counts all ops of a process.
torch does not write a reduce op, a root, split sizes, strides or tags: a difference there cannot be seen, and
the session says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from distdbg.diagnose.load.torch_batches import TorchOp, calls
from distdbg.diagnose.load.torch_dump import (
    Dump,
    Entry,
    created_ns,
    integer,
    read_dumps,
    text,
    wall_ns,
)
from distdbg.diagnose.load.torch_forms import EXTRA_KEYS, Forms
from distdbg.diagnose.load.torch_groups import OF_GROUP, TorchGroups
from distdbg.diagnose.load.torch_messages import number_messages
from distdbg.diagnose.load.torch_names import OpName
from distdbg.diagnose.load.torch_stalls import find_stalls
from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE
from distdbg.diagnose.session import GroupProgress, RankLog, Session, Stack, WorkWait
from distdbg.diagnose.wording import say_ranks
from distdbg.errors import RecordError
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Flag, Status
from distdbg.record.recorded_frame import RecordedFrame

FORMAT: Final = "torch flight recorder"
_MAX_FRAMES: Final = 64
#: An op of gloo that was called so shortly before its rank dumped may have ended.
_YOUNG_NS: Final = 10**9
_MAX_WAITS: Final = 256
_MAX_TIMEOUT_MS: Final = 7 * 24 * 3600 * 1000
#: Files of functions around torch's that say nothing of who called.
_WRAPPERS: Final = frozenset(("typing_extensions.py", "contextlib.py", "functools.py"))
#: Kinds that end nowhere before all members have come.
_NEED_ALL: Final = frozenset(
    KIND_LABELS.index(kind)
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
)
_MAX_INT: Final = 2**31 - 1


def read_torch_dumps(paths: Iterable[Path], *, ranks: Mapping[Path, int] | None = None) -> Session:
    """One session from the files of a job; RecordError when none of them is a dump.

    Args:
        ranks: of files whose names do not end in their rank.
    """
    dumps: list[Dump] = []
    unread: list[RecordError] = []
    for path in paths:
        try:
            dumps += read_dumps(path, rank=(ranks or {}).get(path))
        except RecordError as error:
            unread.append(error)
    if not dumps and unread:
        raise unread[0]
    session = to_session(dumps)
    session.lacks[:0] = [error.what for error in unread]
    return session


def to_session(dumps: Sequence[Dump]) -> Session:
    """One session; of several dumps of a rank the best is taken."""
    chosen, lacks = _choose(dumps)
    builder = _Builder(chosen)
    for dump in chosen:
        builder.add(dump)
    builder.open_what_cannot_have_ended()
    builder.close_what_must_have_ended()
    builder.wait_for_the_oldest()
    session = builder.session
    session.source = _common_folder(chosen)
    session.lacks += lacks + builder.lacks()
    number_messages(session)
    session.said += find_stalls(session, builder.started)
    return session


def _choose(dumps: Sequence[Dump]) -> tuple[list[Dump], list[str]]:
    best: dict[int, Dump] = {}
    doubled = set()
    for dump in dumps:
        other = best.setdefault(dump.rank, dump)
        if other is not dump:
            doubled.add(dump.rank)
            # A later look at the same rank knows more; of one look, the pickle has the stacks.
            if (dump.newest_ns, dump.has_frames) > (other.newest_ns, other.has_frames):
                best[dump.rank] = dump
    lacks = []
    if doubled:
        lacks.append(f"{say_ranks(doubled)} have several dumps; the newest of each was read")
    return [best[rank] for rank in sorted(best)], lacks


def _common_folder(dumps: Sequence[Dump]) -> str:
    folders = {str(Path(dump.source).parent) for dump in dumps}
    return folders.pop() if len(folders) == 1 and len(dumps) > 1 else dumps[0].source


class _Builder:
    """Fills the columns of a session, one dump after the other."""

    def __init__(self, dumps: Sequence[Dump]) -> None:
        self._dumps = dumps
        self._groups = TorchGroups(dumps)
        self.session = Session(source="", format=FORMAT, world_size=self._groups.world_size)
        self.started: dict[int, set[int]] = {}
        """By rank: indexes of ops that the device has begun and not ended."""
        self._names: dict[str, OpName] = {}
        self._forms = Forms(self.session.forms)
        self._stacks: dict[Stack, int] = {}
        self._stack_lists: dict[int, int] = {}
        self._frames: dict[int, RecordedFrame] = {}
        self._has_extras = False
        self._untracked: set[int] = set()
        self._seen: dict[int, int] = {}

    def add(self, dump: Dump) -> None:
        log = RankLog(rank=dump.rank, source=dump.source, host=dump.host, pid=dump.pid)
        self.session.ranks[dump.rank] = log
        entries = dump.read_entries()
        for group in self._groups.of_rank(dump.rank):
            log.progress.setdefault(group, GroupProgress(issued_seq=0, ended_seq=0))
        default = next((i for i, g in enumerate(self._groups.infos) if g.label == "world"), None)
        if default is not None and dump.rank in self._groups.infos[default].ranks:
            log.progress.setdefault(default, GroupProgress(issued_seq=0, ended_seq=0))
        self._forms.begin_dump()
        self._stack_lists.clear()
        self._frames.clear()
        tracks = _tracks_states(entries)
        pg_groups: dict[str, int] = {}
        for call in calls(entries, self._names):
            group = self._groups.index(dump.rank, call.parts[0])
            pg_groups[str(call.parts[0].get("pg_id", ""))] = group
            self._add_call(log, call, group, is_tracked=tracks.get(call.name.backend, True))
        self._read_status(log, dump, pg_groups, is_tracked=all(tracks.values()))
        self.session.groups = self._groups.infos
        first = integer(entries[0].get("record_id"), 0) if entries else 0
        if first or dump.left_out:
            log.lost["ops"] = first + dump.left_out
        if log.ops.issued_ns:
            log.began_ns = log.ops.issued_ns[0]
            log.heartbeat_ns = max(log.ops.issued_ns)
            self._seen[dump.rank] = _seen_ns(dump, entries, log)
            self.session.now_ns = max(self.session.now_ns, self._seen[dump.rank])

    def open_what_cannot_have_ended(self) -> None:
        """gloo's recorder lets go of an op that failed as of one that ended."""
        session = self.session
        for group in range(len(session.groups)):
            members = [rank for rank in session.members(group) if rank in session.ranks]
            came = {rank: session.ranks[rank].progress.get(group) for rank in members}
            last = {rank: 0 if far is None else far.issued_seq for rank, far in came.items()}
            all_came = min(last.values(), default=0)
            if all_came < max(last.values(), default=0):
                absent = [rank for rank in members if last[rank] == all_came]
                for rank in self._untracked.intersection(members):
                    self._open(rank, group, all_came, absent)

    def _open(self, rank: int, group: int, all_came: int, absent: Sequence[int]) -> None:
        ops = self.session.ranks[rank].ops
        for at in range(len(ops) - 1, -1, -1):
            if ops.group[at] != group or ops.flags[at] & Flag.MESSAGE:
                continue
            if ops.seq[at] <= all_came:
                break
            if ops.kind[at] in _NEED_ALL and ops.status[at] == Status.OK:
                ops.status[at] = IN_FLIGHT
                ops.ended_ns[at] = NEVER
                ops.errors[at] = f"it failed: {say_ranks(absent)} never called it"
        log = self.session.ranks[rank]
        far = log.progress.get(group)
        if far is not None:
            log.progress[group] = replace(far, ended_seq=min(far.ended_seq, all_came))

    def close_what_must_have_ended(self) -> None:
        """gloo's recorder lets go of an op a moment after its caller has gone on, and perhaps dumped."""
        ranks = self.session.ranks
        for rank in self._untracked:
            ops = ranks[rank].ops
            for at in list(ops.in_flight()):
                group, seq = ops.group[at], ops.seq[at]
                if (
                    ops.flags[at] & Flag.MESSAGE
                    or ops.kind[at] not in _NEED_ALL
                    or at in ops.errors
                ):
                    continue
                far = [
                    ranks[other].progress.get(group) if other in ranks else None
                    for other in self.session.members(group)
                ]
                have_all_come = all(one is not None and one.issued_seq >= seq for one in far)
                has_any_ended = any(one is not None and one.ended_seq >= seq for one in far)
                is_young = self._seen[rank] - ops.issued_ns[at] < _YOUNG_NS
                if have_all_come and (has_any_ended or is_young):
                    ops.status[at] = Status.OK
                    own = ranks[rank].progress.get(group)
                    if own is not None:
                        reached = max(own.ended_seq, seq)
                        ranks[rank].progress[group] = replace(own, ended_seq=reached)

    def lacks(self) -> list[str]:
        found = []
        missing = self.session.missing_ranks()
        if missing:
            found.append(f"no dump of {say_ranks(missing)} was found")
        if self._groups.unknown:
            named = ", ".join(repr(label) for label in self._groups.unknown[:8])
            found.append(
                f"no dump has the members of group {named}: the ranks that use it are taken"
            )
        versions = {dump.version for dump in self._dumps}
        if len(versions) > 1:
            found.append(f"the dumps are of different versions: {', '.join(sorted(versions)[:8])}")
        cut = [rank for rank, log in self.session.ranks.items() if log.lost.get("ops")]
        if cut:
            found.append(f"the rings of {say_ranks(cut)} wrapped around: older ops are lost")
        if not any(dump.has_frames for dump in self._dumps):
            found.append("the dumps have no stacks: the lines of calls are unknown")
        if self._untracked:
            found.append("this backend's recorder has neither failed ops nor messages")
        if not self._has_extras:
            found.append(
                "torch's dumps have no reduce op, root, split sizes, strides or tags: "
                "differences there cannot be seen"
            )
        return found

    # ------------------------------------------------------------------- one op

    def _add_call(self, log: RankLog, call: TorchOp, group: int, *, is_tracked: bool) -> None:
        entry, state = call.parts[0], call.state
        ops, name = log.ops, call.name
        is_over, is_started = _how_far(state, is_tracked=is_tracked)
        peer, flags = NONE, int(Flag.ASYNC)
        if not is_tracked:
            self._untracked.add(log.rank)
        if name.is_message:
            peer = self._peer(entry, name, group)
            flags |= Flag.MESSAGE
        self._has_extras |= not EXTRA_KEYS.isdisjoint(entry)
        form, fingerprint = self._forms.of(name, call.parts)
        ended = wall_ns(state.get("time_discovered_completed_ns")) if is_over else 0
        index = ops.append(
            number=integer(entry.get("record_id"), len(ops)),
            issued_ns=created_ns(entry) or NEVER,
            ended_ns=ended or NEVER,
            seq=call.seq,
            group=group,
            kind=name.number,
            flags=flags,
            status=Status.OK if is_over else IN_FLIGHT,
            peer=peer,
            source=peer if name.kind == "recv" and is_over else NONE,
            tag=integer(entry.get("tag"), 0),
            form=form,
            stack=self._stack(entry),
            fingerprint=fingerprint,
        )
        if is_started and not is_over:
            self.started.setdefault(log.rank, set()).add(index)
        if name.is_message:
            log.progress.setdefault(group, GroupProgress(issued_seq=0, ended_seq=0))
        else:
            far = log.progress.get(group) or GroupProgress(issued_seq=0, ended_seq=0)
            log.progress[group] = GroupProgress(
                issued_seq=max(far.issued_seq, call.seq),
                ended_seq=max(far.ended_seq, call.seq) if is_over else far.ended_seq,
            )

    def _peer(self, entry: Entry, name: OpName, group: int) -> int:
        if OF_GROUP in entry:
            return min(integer(entry.get("peer"), NONE), _MAX_INT)
        end = name.to_group_rank if name.kind == "send" else name.from_group_rank
        if end is None:
            return NONE
        ranks = self._groups.infos[group].ranks
        if not ranks:
            return min(end, _MAX_INT)
        return ranks[end] if end < len(ranks) else NONE

    def _stack(self, entry: Entry) -> int:
        given = entry.get("frames")
        if not isinstance(given, list) or not given:
            return 0
        index = self._stack_lists.get(id(given))
        if index is None:
            frames = tuple(
                self._frame(frame) for frame in given[:_MAX_FRAMES] if isinstance(frame, dict)
            )
            index = self._stack_lists[id(given)] = self._stack_index(_from_call_site(frames))
        return index

    def _stack_index(self, frames: Stack) -> int:
        index = self._stacks.get(frames)
        if index is None:
            self.session.stacks.append(frames)
            index = self._stacks[frames] = len(self.session.stacks) - 1
        return index

    def _frame(self, frame: Entry) -> RecordedFrame:
        found = self._frames.get(id(frame))
        if found is None:
            found = self._frames[id(frame)] = RecordedFrame(
                text(frame.get("filename")), integer(frame.get("line"), 0), text(frame.get("name"))
            )
        return found

    # ------------------------------------------------------------------- one rank

    def _read_status(
        self, log: RankLog, dump: Dump, pg_groups: Mapping[str, int], *, is_tracked: bool
    ) -> None:
        """pg_status knows of ops that are not in the ring. gloo's counts messages too: not usable."""
        if not is_tracked or self._counts_messages(log):
            return
        for pg_id, status in dump.pg_status.items():
            group = pg_groups.get(str(pg_id))
            if group is None and str(pg_id) == "0" and "0" in dump.pg_config:
                group = self._groups.named(dump.rank, "0", "default_pg")
            if group is None or not isinstance(status, dict):
                continue
            far = log.progress.get(group) or GroupProgress(issued_seq=0, ended_seq=0)
            issued = integer(status.get("last_enqueued_collective"), -1)
            ended = integer(status.get("last_completed_collective"), -1)
            log.progress[group] = GroupProgress(
                issued_seq=max(far.issued_seq, issued), ended_seq=max(far.ended_seq, ended)
            )

    def _counts_messages(self, log: RankLog) -> bool:
        """Whether the rank has sent messages, of which older versions do not say how they count."""
        return any(flags & Flag.MESSAGE for flags in log.ops.flags)

    def wait_for_the_oldest(self) -> None:
        """A device works off what was called in order: in the way is the oldest op of each group.

        Whether a thread of the program waits for it is not written down; what stays in the way does not
        let it come far.
        """
        for log in self.session.ranks.values():
            ops = log.ops
            oldest: dict[tuple[int, int], int] = {}
            waited = []
            for at in ops.in_flight():
                is_message = ops.flags[at] & Flag.MESSAGE
                seq = oldest.setdefault((ops.group[at], is_message), ops.seq[at])
                if seq == ops.seq[at]:  # the messages of a batch have one seq yet
                    waited.append(at)
            log.work_waits = tuple(
                WorkWait(
                    thread=0,
                    number=ops.number[at],
                    since_ns=ops.issued_ns[at],
                    stack=ops.stack[at],
                )
                for at in waited[:_MAX_WAITS]
            )


def _seen_ns(dump: Dump, entries: Sequence[Entry], log: RankLog) -> int:
    """When the rank was in this state: when the file was written, unless it was copied since."""
    timeouts = [integer(entry.get("timeout_ms"), 0) for entry in entries[-64:]]
    latest = log.heartbeat_ns + 2 * 10**6 * min(max(timeouts, default=0), _MAX_TIMEOUT_MS)
    return dump.written_ns if log.heartbeat_ns < dump.written_ns <= latest else log.heartbeat_ns


def _tracks_states(entries: Sequence[Entry]) -> dict[str, bool]:
    """By backend: whether its entries ever leave 'scheduled'. gloo's do not, and retire all the same."""
    seen: dict[str, bool] = {}
    retires: dict[str, bool] = {}
    for entry in entries:
        backend = text(entry.get("profiling_name")).partition(":")[0]
        seen[backend] = seen.get(backend, False) or entry.get("state") != "scheduled"
        retires[backend] = retires.get(backend, False) or entry.get("retired") is True
    return {
        backend: moves or not (retires[backend] or backend == "gloo")
        for backend, moves in seen.items()
    }


def _how_far(state: Entry, *, is_tracked: bool) -> tuple[bool, bool]:
    """Whether the op is over, and whether the device has begun it."""
    word = state.get("state")
    if not is_tracked:
        return state.get("retired") is True, False
    return word == "completed", word in ("started", "completed")


def _from_call_site(frames: Stack) -> Stack:
    """Begin at the caller of torch; where all is torch's, that is the caller."""
    for index, frame in enumerate(frames):
        file = frame.file.replace("\\", "/")
        if "/torch/" not in file and file.rpartition("/")[2] not in _WRAPPERS:
            return frames[index:]
    return frames
