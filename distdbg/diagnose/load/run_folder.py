"""Reads sessions from our runs: a folder, one start, single records; running or finished.

    load_run("runs/0412")                       its last start
    load_run("runs/0412", attempt=0)            the first
    load_run("runs/0412/attempt_1")
    load_run("rank00003.ddr")                   one rank
    load_runs(["host1/0412", "host2/0412"])     folders of one run, copied from several hosts

What cannot be read is in `Session.lacks`; it is an error only when nothing can be read. Running ranks are
not interrupted.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from distdbg.control.layout import page_name
from distdbg.diagnose.load.clocks import find_offsets
from distdbg.diagnose.load.kept_output import add_kept_output, error_files
from distdbg.diagnose.load.proof import read_proofs
from distdbg.diagnose.load.rank_file import RankFile, read_rank
from distdbg.diagnose.load.tables import Tables
from distdbg.diagnose.load.witnesses import (
    choose_end,
    is_running,
    read_all_ends,
    read_all_joins,
    read_all_sightings,
    read_threads,
)
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Activity, RankLog, Session, Stack
from distdbg.diagnose.wording import say_site, short_site
from distdbg.errors import RecordError, UsageError, format_ranks
from distdbg.record.ends import RankEnd
from distdbg.record.error_file import ErrorFacts, read_error_file
from distdbg.record.folders import SUFFIX, attempt_number, attempts, is_live
from distdbg.record.format import MAGIC, Exit
from distdbg.record.join_calls import JoinCall
from distdbg.record.libraries import is_library
from distdbg.record.observations import dead_child_in
from distdbg.record.printed_stack import own_frame, read_stack
from distdbg.record.rank_words import read_boot_id
from distdbg.record.reader import RecordFile
from distdbg.record.regular_file import open_regular
from distdbg.record.stack_file import read_crash
from distdbg.record.stop_order import read_stop_order

_CRASHES: Final = ("signal",)
_STDERR: Final = "stderr.log"


AnyPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class RunPath:
    """What is to be read of one path."""

    folder: Path
    records: tuple[Path, ...]
    attempt: int = 0
    attempts: int = 1


def is_run(path: AnyPath) -> bool:
    """Whether this is the folder of a run, or of one of its starts, or a record."""
    path = Path(path)
    if path.is_dir():
        return any(_has_any(folder) for folder in attempts(path))
    try:
        with open_regular(path) as file:
            return file.read(8) == MAGIC.to_bytes(8, "little")
    except (OSError, ValueError):
        return False


def load_run(path: AnyPath, *, attempt: int | None = None) -> Session:
    """Read one start of a run, the last one that left anything if not told which.

    RecordError when nothing can be read, UsageError when there is no such start.
    """
    return load_runs([path], attempt=attempt)


def load_runs(paths: Sequence[AnyPath], *, attempt: int | None = None) -> Session:
    """Read one start of a run of which each host has left a folder of its own."""
    found = [find_places(Path(path)) for path in paths]
    number = _choose_attempt([place for places in found for place in places], attempt)
    chosen = [place for places in found for place in places if place.attempt == number]
    session = Session(
        source=", ".join(os.fspath(path) for path in paths),
        attempt=number,
        attempts=max(place.attempts for place in chosen),
    )
    files, live = _read_all([path for place in chosen for path in place.records], session)
    folders = list(dict.fromkeys(place.folder for place in chosen))
    ends = read_all_ends(folders)
    joins = read_all_joins(folders)
    if not files and not ends and not joins:
        what = f"{session.source} holds no records (*{SUFFIX})"
        raise RecordError(what, path=session.source, details=session.lacks)
    session.has_begun = bool(joins) or any(place.records for place in chosen) or _has_page(folders)
    _fill(session, files, live)
    _add_joins(session, joins, ends)
    _add_witnesses(session, files, live, ends, folders)
    if session.attempt == session.attempts - 1:  # the order stops the whole run
        session.stopped_by = _stop_order(folders)
    _say_what_is_missing(session, files)
    add_kept_output(session, folders)
    add_left_stacks(session, folders)
    if not session.is_live:  # else what was proven may be over by now
        session.said += read_proofs(folders)
    return session


def _stop_order(folders: Iterable[Path]) -> str:
    """Return who asked for the end of the run; the order is in the run's folder, not in that of a start."""
    names = (read_stop_order(each) for folder in folders for each in (folder, folder.parent))
    return next(filter(None, names), "")


def _has_page(folders: Iterable[Path]) -> bool:
    """Whether a rank followed a control page here, as each does that has a record."""
    return any(next(folder.glob(page_name("*")), None) for folder in folders)


def group_runs(paths: Sequence[AnyPath]) -> list[list[Path]]:
    """Group the folders of one start of one run, in their order: what each host has left of it."""
    groups: dict[tuple[str | Path, int | None], list[Path]] = {}
    for given in paths:
        path = Path(given)
        number = attempt_number(path if path.is_dir() else path.absolute().parent)
        groups.setdefault((run_name(path) or path, number), []).append(path)
    return list(groups.values())


def run_name(path: Path) -> str:
    """Return the name in the first record that can be read; ''."""
    try:
        records = [record for place in find_places(path) for record in place.records]
    except RecordError:
        return ""
    for record in records:
        try:
            with RecordFile(record, salvage=True) as file:
                return file.header.run
        except RecordError:
            continue
    return ""


# ------------------------------------------------------------------------------------- what to read


def find_places(path: Path) -> list[RunPath]:
    """What is to be read of this path, a place for each start; RecordError for what cannot be read."""
    if not path.is_dir():
        return [RunPath(path.parent, (path,), *_place_among(path.parent))]
    number = attempt_number(path)
    if number is not None:
        return [RunPath(path, _records(path), *_place_among(path))]
    folders = attempts(path)
    count = len(folders)
    return [RunPath(at, _records(at), attempt_number(at) or 0, count) for at in folders]


def _place_among(folder: Path) -> tuple[int, int]:
    """The number of a start, and how many there are beside it."""
    number = attempt_number(folder)
    if number is None:
        return 0, 1
    return number, max(number + 1, len(attempts(folder.absolute().parent)))


def _records(folder: Path) -> tuple[Path, ...]:
    try:
        with os.scandir(folder) as found:
            names = [entry.name for entry in found if entry.name.endswith(SUFFIX)]
    except OSError as error:
        what = f"{folder} cannot be read: {error.strerror}"
        raise RecordError(what, path=str(folder)) from error
    return tuple(folder / name for name in sorted(names) if not name.startswith("."))


def _has_any(folder: Path) -> bool:
    """Whether anything of a rank is there: a record, or the word of who saw its end."""
    try:
        with os.scandir(folder) as found:
            return any(
                entry.name.endswith(SUFFIX) or entry.name.startswith(("ends-", "joins-"))
                for entry in found
            )
    except PermissionError:
        return attempt_number(folder) is not None  # whoever reads it says what is wrong
    except OSError:
        return False


def _choose_attempt(places: Sequence[RunPath], wanted: int | None) -> int:
    there = sorted({place.attempt for place in places})
    if wanted is not None:
        if wanted not in there:
            raise UsageError(
                f"this run has no start number {wanted}",
                details=[f"its starts: {format_ranks(there)}"],
            )
        return wanted
    used = {place.attempt for place in places if place.records or _has_any(place.folder)}
    return max(used, default=there[-1])


# ---------------------------------------------------------------------------------------- reading


def _read_all(paths: Iterable[Path], session: Session) -> tuple[dict[int, RankFile], set[int]]:
    """The newest record of each rank, and which ranks live."""
    tables = Tables(session)
    files: dict[int, RankFile] = {}
    seen: set[Path] = set()
    for path in paths:
        if (real := path.resolve()) in seen:
            continue
        seen.add(real)
        try:
            file = read_rank(path, tables)
        except RecordError as error:
            session.lacks.append(error.what)
            continue
        rank = file.header.rank
        other = files.get(rank)
        if other is not None:
            newer, older = sorted((file, other), key=_began, reverse=True)
            file = newer
            session.lacks.append(
                f"rank {rank} has two records: {newer.log.source} was read, "
                f"{older.log.source} is older"
            )
        files[rank] = file
    _leave_out_other_runs(files, session)
    live = {rank for rank, file in files.items() if is_live(Path(file.log.source).resolve())}
    return files, live


def _began(file: RankFile) -> int:
    return file.header.wall_ns


def _leave_out_other_runs(files: dict[int, RankFile], session: Session) -> None:
    if len({file.header.run for file in files.values()}) < 2:
        return
    run = max(files.values(), key=_began).header.run
    others = defaultdict(list)
    for rank in [rank for rank, file in files.items() if file.header.run != run]:
        others[files.pop(rank).header.run].append(rank)
    for name, ranks in others.items():
        session.lacks.append(f"{_ranks(ranks)} of run {name} left out: this is run {run}")


def _fill(session: Session, files: dict[int, RankFile], live: set[int]) -> None:
    clocks = find_offsets({rank: (file.header, file.state) for rank, file in files.items()})
    for rank in sorted(files):
        file = files[rank]
        file.log.offset_ns = clocks[rank].offset_ns
        file.log.clock_error_ns = clocks[rank].error_ns
        session.ranks[rank] = file.log
    if files:
        first = files[min(files)]
        session.run = first.header.run
        session.world_size = max(file.header.world_size for file in files.values())
    session.is_live = bool(live)


def _add_witnesses(
    session: Session,
    files: dict[int, RankFile],
    live: set[int],
    ends: dict[int, list[RankEnd]],
    folders: Sequence[Path],
) -> None:
    boot_id = read_boot_id()
    seen = read_all_sightings(folders)
    offsets = {log.host: log.offset_ns for log in session.ranks.values()}
    for rank, log in session.ranks.items():
        log.end = choose_end(ends.get(rank, []), pid=log.pid, is_live=rank in live)
        log.activities = seen.get((rank, log.pid), ())
        log.activity = log.activities[-1] if log.activities else None
        if rank in live:
            log.threads = read_threads(files[rank], boot_id)
    for rank, of_rank in ends.items():
        if rank not in session.ranks:  # it ended before it had a record
            end = of_rank[-1]
            log = RankLog(rank=rank, host=end.host, pid=end.pid, end=end)
            log.offset_ns = offsets.get(end.host, end.wall_ns - end.ended_ns)
            log.activities = seen.get((rank, end.pid), ())
            log.activity = log.activities[-1] if log.activities else None
            session.ranks[rank] = log
    if any(log.join is not None for log in session.ranks.values()):
        _add_seen(session, seen)
    session.ranks = dict(sorted(session.ranks.items()))
    session.now_ns = _now_ns(session, files, live, boot_id)
    session.was_killed = not live and _was_killed(session, files, boot_id)


def _add_joins(
    session: Session, joins: dict[int, JoinCall], ends: dict[int, list[RankEnd]]
) -> None:
    """Ranks that wait for their first group: they have no record yet."""
    for rank, call in joins.items():
        if rank in session.ranks:
            continue
        log = RankLog(rank=rank, host=call.host, pid=call.pid, join=call)
        log.offset_ns = call.wall_ns - call.since_ns
        session.ranks[rank] = log
        session.world_size = session.world_size or max(call.started, 0)
        session.is_live |= not ends.get(rank) and is_running(call)


def _add_seen(session: Session, seen: Mapping[tuple[int, int], tuple[Activity, ...]]) -> None:
    """Ranks that only an agent has seen, while the others wait for them."""
    for (rank, pid), activities in seen.items():
        if rank not in session.ranks:
            first = next(log for log in session.ranks.values() if log.join is not None)
            log = RankLog(rank=rank, host=first.host, pid=pid)
            log.offset_ns, log.activities = first.offset_ns, activities
            log.activity = activities[-1]
            session.ranks[rank] = log


def _was_killed(session: Session, files: dict[int, RankFile], boot_id: str) -> bool:
    """Only where that can be seen: the processes were of this machine since it started."""
    return bool(boot_id and files) and all(
        rank in files
        and files[rank].header.boot_id == boot_id
        and log.end is None
        and log.exit is None
        and not Path(f"/proc/{log.pid}").exists()  # else this is a copy of what still runs
        for rank, log in session.ranks.items()
    )


def _now_ns(session: Session, files: dict[int, RankFile], live: set[int], boot_id: str) -> int:
    """On the session's clock: now, where a rank of this machine lives; else the last sign of life."""
    for rank in live:
        if boot_id and files[rank].header.boot_id == boot_id:
            return time.monotonic_ns() + session.ranks[rank].offset_ns
    if session.is_live:
        return time.time_ns()
    return max((_last_sign_ns(log) for log in session.ranks.values()), default=NEVER)


def _last_sign_ns(log: RankLog) -> int:
    ops = log.ops
    times = [log.began_ns, log.heartbeat_ns, log.exit_ns, max(ops.ended_ns, default=NEVER)]
    times.append(max(ops.issued_ns, default=NEVER))
    if log.join is not None:
        times.append(max(log.join.since_ns, log.join.step_ns))
    if log.end is not None:
        times.append(log.end.ended_ns)
    return max(times) + log.offset_ns


# -------------------------------------------------------------------------------- what is missing


def _say_what_is_missing(session: Session, files: dict[int, RankFile]) -> None:
    lacks = session.lacks
    without = [
        rank
        for rank, log in session.ranks.items()
        if rank not in files and log.end is not None and not log.is_joining
    ]
    lacks += say_missing(session.world_size, session.missing_ranks(), without)
    damaged = {rank: file.unreadable for rank, file in files.items() if file.unreadable}
    if damaged:
        count = sum(damaged.values())
        places = "1 place" if count == 1 else f"{count:,} places"
        lacks.append(f"{places} in the records of {_ranks(damaged)} cannot be read")
    elsewhere = [rank for rank, log in session.ranks.items() if log.clock_error_ns is None]
    if rank_hosts := {session.ranks[rank].host for rank in elsewhere if rank in files}:
        hosts = ", ".join(sorted(rank_hosts)[:8])
        lacks.append(f"the clocks of {hosts} were not compared with that of the first host")
    unknown = [group.label for group in session.groups if not group.ranks]
    if unknown:
        names = ", ".join(f"'{label}'" for label in unknown[:8])
        lacks.append(f"the members of group {names} cannot be read; its peers are group ranks")


def say_missing(world_size: int, unknown: Sequence[int], without: Sequence[int]) -> list[str]:
    """The ranks of which there is nothing, and those that left how they ended and no record."""
    said = [f"nothing is known of {_ranks(unknown)} of {world_size}"] if unknown else []
    if without:
        said.append(f"{_ranks(without)} left no record; only how it ended is known")
    return said


def _ranks(ranks: Iterable[int]) -> str:
    ranks = list(ranks)
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"


def add_left_stacks(session: Session, folders: Sequence[Path]) -> None:
    """Fill `RankLog.left_stack` of those that raised or crashed."""
    raised = {rank for rank, log in session.ranks.items() if log.exit is Exit.RAISED}
    silent = {rank for rank, log in session.ranks.items() if _is_silent(log)}
    for path in error_files(folders, session.attempt) if raised or silent else ():
        facts = read_error_file(path)
        if facts is None or facts.rank is None or facts.rank not in raised | silent:
            continue
        log = session.ranks[facts.rank]
        if facts.rank in silent:
            _take_over(facts, log)
        if log.exit is Exit.RAISED and _is_of(facts, log):
            log.left_stack, log.left_values = _stack_of(facts), facts.values
            log.exit_notes, log.exit_hint = facts.notes, log.exit_hint or facts.hint or ""
    for rank, log in session.ranks.items():
        if log.end is None or log.end.cause not in _CRASHES or log.exit is Exit.RAISED:
            continue
        texts = [read_crash(folder, rank) for folder in folders]
        if log.activity is not None and dead_child_in(log.activity.why):
            # The dump is of that process, which has the stderr of its parent.
            log.child_stack = read_stack(next(filter(None, texts), ""))
            continue
        printed = [
            one.text for one in session.lines if one.rank == rank and one.source.startswith(_STDERR)
        ]
        log.left_stack = read_stack(next(filter(None, texts), "\n".join(printed)))


def _is_silent(log: RankLog) -> bool:
    """Whether it failed by itself and has no record that says why: before it had a group, say."""
    return log.exit is None and log.end is not None and log.end.cause == "exited" and log.has_failed


def _take_over(facts: ErrorFacts, log: RankLog) -> None:
    """What the rank said to its launcher, as if it stood in a record."""
    assert log.end is not None
    if facts.pid not in (None, log.end.pid):
        return  # of another start
    own = own_frame(_stack_of(facts))
    log.exit, log.exit_what = Exit.RAISED, facts.first_line
    log.exit_where = "" if own is None else str(own)
    log.exit_hint = facts.hint or ""


def _stack_of(facts: ErrorFacts) -> Stack:
    """Where it was raised: in a worker, where that has a line of the program."""
    inner = read_stack(facts.inner)
    own = own_frame(inner)
    return inner if own is not None and not is_library(own.file) else read_stack(facts.traceback)


def _is_of(facts: ErrorFacts, log: RankLog) -> bool:
    """Whether the traceback ends where the record says that the rank raised."""
    lines = [say_site(frame).partition(" (")[0] for frame in _stack_of(facts)]
    where = short_site(log.exit_where).partition(" (")[0]
    return not where or where in lines
