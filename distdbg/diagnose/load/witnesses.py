"""What launcher and agents saw of the ranks: their ends, last states, and running threads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from distdbg.diagnose.load.rank_file import RankFile
from distdbg.diagnose.session import Activity
from distdbg.record.ends import RankEnd, read_ends
from distdbg.record.host import host_name
from distdbg.record.join_calls import JoinCall, read_join_calls
from distdbg.record.observations import Observation, read_sightings
from distdbg.record.recorded_frame import RecordedFrame


def read_all_ends(folders: Iterable[Path]) -> dict[int, list[RankEnd]]:
    """All lines of all hosts, by rank."""
    ends: dict[int, list[RankEnd]] = {}
    for folder in folders:
        for end in read_ends(folder):
            numbers = (end.rank, end.pid, end.ended_ns, end.wall_ns)
            if all(type(n) is int for n in numbers) and isinstance(end.host, str):
                ends.setdefault(end.rank, []).append(end)
    return ends


def choose_end(ends: list[RankEnd], *, pid: int, is_live: bool) -> RankEnd | None:
    """The end of this process: the launcher's word goes before that of an agent, who only looks.

    Where a shell started the program, the launcher knows the shell's pid; that end counts, unless the
    program has outlived it.
    """
    own = [end for end in ends if end.pid == pid]
    if not own and not is_live:
        own = ends
    return next((end for end in reversed(own) if end.by == "launcher"), own[-1] if own else None)


def read_all_sightings(folders: Iterable[Path]) -> dict[tuple[int, int], tuple[Activity, ...]]:
    """Those of each process, in order, by rank and pid."""
    found: dict[tuple[int, int], list[Activity]] = {}
    for folder in folders:
        for seen in read_sightings(folder):
            if type(seen.rank) is int and type(seen.pid) is int and type(seen.since_ns) is int:
                found.setdefault((seen.rank, seen.pid), []).append(_to_activity(seen))
    return {who: tuple(each) for who, each in found.items()}


def read_all_joins(folders: Iterable[Path]) -> dict[int, JoinCall]:
    """The last call of init_process_group of each rank."""
    calls = (call for folder in folders for call in read_join_calls(folder).values())
    return {call.rank: call for call in sorted(calls, key=lambda call: call.since_ns)}


def is_running(call: JoinCall) -> bool:
    """Whether the process of this host that made the call is there."""
    return call.host == host_name() and Path(f"/proc/{call.pid}").exists()


def _to_activity(seen: Observation) -> Activity:
    return Activity(
        state=seen.state,
        since_ns=seen.since_ns,
        why=str(seen.why),
        site=str(seen.site),
        stack=tuple(RecordedFrame(*frame) for frame in seen.stack),
        longest_gap_ns=seen.longest_gap_ns if type(seen.longest_gap_ns) is int else 0,
    )


def read_threads(file: RankFile, boot_id: str) -> frozenset[int] | None:
    """The living threads of a rank of this machine; None when it is elsewhere or gone."""
    header = file.header
    if not boot_id or header.boot_id != boot_id:
        return None
    try:
        stat = Path(f"/proc/{header.pid}/stat").read_bytes()
        # The name may hold spaces and brackets; the start tells a pid that was given again.
        if int(stat.rpartition(b")")[2].split()[19]) != header.process_start:
            return None
        return frozenset(map(int, os.listdir(f"/proc/{header.pid}/task")))
    except (OSError, ValueError, IndexError):
        return None
