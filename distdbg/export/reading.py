"""A run as the formats need it: one rank at a time, on one clock, in memory that its largest rank fills.

    run = open_run([folder], Chosen(ranks=frozenset({0, 1})))
    for start in run.starts:                        each start of the job has ranks of its own
        for log in start.read():                    a RankLog: columns of ops, notes, what it found
            log.ops.issued_ns[i] + log.offset_ns    wall time of the first host
            start.session.groups[log.ops.group[i]]  also forms, stacks, comms: filled while it is read

What `start.session` has tables for grows with what differs, not with the number of ops; `session.ranks`
stays empty. A log that was yielded is not kept. Times, groups and global ranks are those that the
diagnosis has of the same run. What is not there is counted in `run.counted`, and `run.lacks()` says it.

Dumps of torch's flight recorder come as a whole, in the same shape.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from distdbg.diagnose.load.clocks import ClockOffset, find_offsets
from distdbg.diagnose.load.rank_file import read_rank
from distdbg.diagnose.load.run_folder import RunPath, find_places, is_run, load_runs, say_missing
from distdbg.diagnose.load.tables import Tables
from distdbg.diagnose.load.witnesses import choose_end, read_all_ends
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import RankLog, Session
from distdbg.errors import RecordError, UsageError, format_ranks
from distdbg.export.run_clock import bound, is_time
from distdbg.export.window import cut_to_window
from distdbg.record.ends import RankEnd
from distdbg.record.entries import RecordHeader, StateEntry
from distdbg.record.folders import is_live
from distdbg.record.rank_words import read_boot_id
from distdbg.record.reader import RecordFile

#: What `counted` has from `RankLog.lost`, in words: of one, and of more.
_NO_ROOM: Final = "the records had no room for more"
_LOST: Final = {
    "ops": (f"op was overwritten: {_NO_ROOM}", f"ops were overwritten: {_NO_ROOM}"),
    "strings": (f"name was lost: {_NO_ROOM}", f"names were lost: {_NO_ROOM}"),
    "sites": (f"call site was lost: {_NO_ROOM}", f"call sites were lost: {_NO_ROOM}"),
    "parked": (f"op in flight was lost: {_NO_ROOM}", f"ops in flight were lost: {_NO_ROOM}"),
    "waits": (f"wait was lost: {_NO_ROOM}", f"waits were lost: {_NO_ROOM}"),
    "gaps": ("place in the records is damaged", "places in the records are damaged"),
}

#: Called with (ranks read, ranks there are).
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSelection:
    """What of a run is wanted; all of it, if not told."""

    ranks: frozenset[int] | None = None
    since_ns: int | None = None
    """Ops that had not ended then and notes from then on; on the run's clock."""
    until_ns: int | None = None
    """What was issued before."""
    last_ns: int | None = None
    """Instead of `since_ns`: so long before the last sign of life of each start."""
    attempt: int | None = None
    """Which start of the job; None: all of them."""


@dataclass(slots=True)
class ReadCounts:
    """What was read so far."""

    ranks: int = 0
    ops: int = 0
    notes: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    """As `RankLog.lost`, of all ranks."""


@dataclass(frozen=True, slots=True)
class _File:
    """One record, and what its first words say."""

    path: Path
    header: RecordHeader
    state: StateEntry
    ring_count: int
    is_live: bool


class RunStart:
    """One start of a job. `read` may be called again: it reads anew."""

    def __init__(
        self,
        session: Session,
        chosen: RunSelection,
        run: OpenedRun,
        *,
        files: Mapping[int, _File] | None = None,
        ends: Mapping[int, list[RankEnd]] | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        self._chosen = chosen
        self._run = run
        self._files = files
        self._ends = ends or {}
        self.folders = tuple(folders)
        """Where the records of a run of ours are."""
        self.session = session
        """Its tables; `ranks` is empty, unless it is of another tool."""
        self._held: dict[int, RankLog] = {}
        self._end_ns: int | None = None
        if files is None:
            self._held, session.ranks = session.ranks, {}
        self._tables = Tables(session)
        self._clocks: dict[int, ClockOffset] = {}
        if files:
            found = find_offsets({rank: (f.header, f.state) for rank, f in files.items()})
            self._clocks = {
                rank: replace(one, offset_ns=bound(one.offset_ns)) for rank, one in found.items()
            }

    @property
    def number(self) -> int:
        return self.session.attempt

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that `read` gives."""
        there = {*self._held, *(self._files or {}), *self._ends}
        wanted = self._chosen.ranks
        return tuple(sorted(there if wanted is None else there & wanted))

    def read(self) -> Iterator[RankLog]:
        """Each rank, in their order; one that cannot be read any more is said in `session.lacks`."""
        counted = self._run.counted
        for rank in self.ranks:
            log = self._read_one(rank, self.session.lacks)
            log = None if log is None else self.choose(log)
            if log is None:
                continue
            counted.ranks += 1
            counted.ops += len(log.ops)
            counted.notes += len(log.notes)
            counted.lost.update(log.lost)
            yield log
            del log
            self._run.on_progress(counted.ranks, self._run.rank_count)

    def read_all(self) -> Iterator[RankLog]:
        """Also ranks and ops that are not wanted, and nothing is counted: for who has to compare ranks."""
        for rank in sorted({*self._held, *(self._files or {})}):
            log = self._read_one(rank, [])
            if log is not None:
                yield log
            del log

    def choose(self, log: RankLog) -> RankLog | None:
        """What is wanted of a rank of `read_all`, which it changes; None: nothing."""
        if self._chosen.ranks is not None and log.rank not in self._chosen.ranks:
            return None
        window = self.window()
        if window != (None, None):
            cut_to_window(log, *window)
        return log

    def load(self) -> Session | None:
        """All of it at once, for the diagnosis; None where it cannot be read any more."""
        if self._files is None:
            return replace(self.session, ranks=self._held)
        try:
            return load_runs(self._run.paths, attempt=self.number)
        except (RecordError, UsageError) as error:
            self.session.lacks.append(error.what)
            return None

    @property
    def pids(self) -> dict[int, int]:
        """The pids of the ranks that have a record."""
        if self._files is None:
            return {rank: log.pid for rank, log in self._held.items()}
        return {rank: file.header.pid for rank, file in self._files.items()}

    def offset_ns(self, rank: int) -> int:
        """Added to a time of this rank it gives the run's clock."""
        if rank in self._held:
            return self._held[rank].offset_ns
        if rank in self._clocks:
            return self._clocks[rank].offset_ns
        end = self._ends[rank][-1]  # it ended before it had a record
        return bound(end.wall_ns - end.ended_ns)

    def first_ns(self) -> int:
        """When the first of its ranks began, on the run's clock; NEVER."""
        if self._files is None:
            return min(
                (
                    min(log.ops.issued_ns) + log.offset_ns
                    for log in self._held.values()
                    if len(log.ops)
                ),
                default=NEVER,
            )
        times = [f.header.monotonic_ns + self.offset_ns(rank) for rank, f in self._files.items()]
        if not times:
            times = [
                end.ended_ns + self.offset_ns(r) for r, ends in self._ends.items() for end in ends
            ]
        return min(filter(is_time, times), default=NEVER)

    def end_ns(self) -> int:
        """The last sign of life of any rank, or when this was asked first, on the run's clock; NEVER."""
        if self._end_ns is None:
            self._end_ns = self._find_end()
        return self._end_ns

    def _find_end(self) -> int:
        times = [end.ended_ns + self.offset_ns(r) for r, ends in self._ends.items() for end in ends]
        for rank, file in (self._files or {}).items():
            if file.is_live and file.header.boot_id == read_boot_id():
                return time.monotonic_ns() + self.offset_ns(rank)
            own = (file.header.monotonic_ns, file.state.heartbeat_ns, file.state.exit_ns)
            times += [own_ns + self.offset_ns(rank) for own_ns in own]
        for log in self._held.values():
            latest = max([*log.ops.issued_ns, *log.ops.ended_ns], default=NEVER)
            times.append(latest + log.offset_ns if latest != NEVER else NEVER)
        return max(filter(is_time, times), default=NEVER)

    def window(self) -> tuple[int | None, int | None]:
        """From when to when, on the run's clock, ops are wanted; None: no limit."""
        chosen = self._chosen
        if chosen.last_ns is not None:
            return self.end_ns() - chosen.last_ns, chosen.until_ns
        return chosen.since_ns, chosen.until_ns

    def count_at_most(self) -> int:
        """How many events there can be, by the first words of the records."""
        if self._files is None:
            return sum(len(log.ops) for log in self._held.values())
        return sum(min(f.state.last_number, f.ring_count) for f in self._files.values())

    def _read_one(self, rank: int, lacks: list[str]) -> RankLog | None:
        if rank in self._held:
            return replace(self._held[rank])
        file = (self._files or {}).get(rank)
        if file is None:
            end = self._ends[rank][-1]
            log = RankLog(rank=rank, host=end.host, pid=end.pid, end=end)
            log.offset_ns = self.offset_ns(rank)
            return log
        try:
            log = read_rank(file.path, self._tables).log
        except RecordError as error:
            lacks.append(error.what)
            return None
        log.offset_ns = self._clocks[rank].offset_ns
        log.clock_error_ns = self._clocks[rank].error_ns
        log.end = choose_end(self._ends.get(rank, []), pid=log.pid, is_live=file.is_live)
        return log


class OpenedRun:
    """A run that is read rank by rank."""

    def __init__(
        self, paths: Sequence[Path], chosen: RunSelection, on_progress: OnProgress | None = None
    ) -> None:
        self.paths = tuple(paths)
        self.chosen = chosen
        self.starts: tuple[RunStart, ...] = ()
        self.counted = ReadCounts()
        self.on_progress: OnProgress = on_progress or (lambda done, there_are: None)

    @property
    def source(self) -> str:
        return ", ".join(str(path) for path in self.paths)

    @property
    def name(self) -> str:
        """The name of the run, or of what was read."""
        names = [start.session.run for start in self.starts if start.session.run]
        return names[-1] if names else self.paths[0].resolve().name

    @property
    def rank_count(self) -> int:
        return sum(len(start.ranks) for start in self.starts)

    def lacks(self) -> list[str]:
        """What is not there, each in one sentence; all of it when all was read."""
        said = [lack for start in self.starts for lack in start.session.lacks]
        lost = self.counted.lost
        said += [
            f"{count:,} {_LOST.get(what, (what, what))[count != 1]}"
            for what, count in lost.items()
            if count
        ]
        return list(dict.fromkeys(said))


def open_run(
    paths: Sequence[Path],
    chosen: RunSelection | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> OpenedRun:
    """Look at what is there, and read the first words of each record.

    RecordError when nothing can be read, UsageError for a path, a start or ranks that are not there.
    """
    chosen = chosen or RunSelection()
    run = OpenedRun(paths, chosen, on_progress)
    if all(is_run(path) for path in paths):
        run.starts = tuple(_open_starts(run, paths, chosen))
    else:
        from distdbg.diagnose.load.open import open_paths

        sessions = open_paths(paths)
        if chosen.attempt is not None:
            sessions = [s for s in sessions if s.attempt == chosen.attempt]
        run.starts = tuple(RunStart(session, chosen, run) for session in sessions)
    if not run.starts:
        what = f"this run has no start number {chosen.attempt}"
        raise UsageError(what) if chosen.attempt is not None else _holds_nothing(run.source, [])
    if not run.rank_count and chosen.ranks is not None:
        raise UsageError(f"this run has nothing of ranks {format_ranks(chosen.ranks)}")
    return run


def _open_starts(run: OpenedRun, paths: Sequence[Path], chosen: RunSelection) -> Iterator[RunStart]:
    places: dict[int, list[RunPath]] = {}
    for path in paths:
        for place in find_places(path):
            places.setdefault(place.attempt, []).append(place)
    lacks: list[str] = []
    is_any = False
    for number in sorted(places):
        if chosen.attempt not in (None, number):
            continue
        session = Session(
            source=run.source,
            attempt=number,
            attempts=max(place.attempts for place in places[number]),
        )
        files = _open_files([path for place in places[number] for path in place.records], session)
        folders = list(dict.fromkeys(place.folder for place in places[number]))
        ends = read_all_ends(folders)
        if not files and not ends:
            lacks += session.lacks
            continue
        if files:
            session.run = files[min(files)].header.run
            session.world_size = max(file.header.world_size for file in files.values())
            session.is_live = any(file.is_live for file in files.values())
            wanted = chosen.ranks or range(session.world_size)
            without = [rank for rank in sorted(wanted) if rank not in files]
            session.lacks += say_missing(
                session.world_size,
                [rank for rank in without if rank not in ends],
                [rank for rank in without if rank in ends],
            )
        is_any = True
        yield RunStart(session, chosen, run, files=files, ends=ends, folders=folders)
    if not is_any and chosen.attempt is None:
        raise _holds_nothing(run.source, lacks)


def _open_files(paths: Sequence[Path], session: Session) -> dict[int, _File]:
    """The newest record of each rank, of the newest run among them."""
    found: list[_File] = []
    for path in dict.fromkeys(path.resolve() for path in paths):
        try:
            with RecordFile(path, salvage=True) as record:
                live = is_live(path)
                found.append(_File(path, record.header, record.state(), record.ring_count, live))
        except RecordError as error:
            session.lacks.append(error.what)
    if not found:
        return {}
    found.sort(key=lambda file: file.header.wall_ns)
    run = found[-1].header.run
    files = {file.header.rank: file for file in found if file.header.run == run}
    if left := [file for file in found if file is not files.get(file.header.rank)]:
        names = ", ".join(str(file.path) for file in left[:4])
        session.lacks.append(f"{names}: left out, of another run or older than what was read")
    return files


def _holds_nothing(source: str, lacks: list[str]) -> RecordError:
    return RecordError(f"{source} holds no records (*.ddr)", path=source, details=lacks[:8])
