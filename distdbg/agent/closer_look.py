"""Examines ranks without progress, while others wait for them or no rank makes progress.

    no progress for a second -> look -> 0.35 s -> look -> judged -> again after 1, 2, 4 ... 30 s,
    after 1 s at first if the judgement is unsure

A look is the process in /proc and its stacks. A rank that makes progress is dropped at once. While nobody
is seen waiting, the rank is not stopped for it, not for a millisecond; frames below Python, which take
longer, are looked for only in the second look, and only where the first has found an owner of the GIL.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import distdbg
from distdbg.agent.blockers import (
    CHILD_WAITS,
    are_children_locked,
    awaited_child,
    dead_child,
    lock_holder,
    read_end,
    read_locks,
)
from distdbg.agent.take_stacks import SampledProcess, take_one
from distdbg.follow.processes import command_name, read_main_thread, read_stat
from distdbg.follow.roster import Roster
from distdbg.follow.stuck import FILE_LOCKS, Look, StuckJudgement, judge
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.rank_state import RankState

UNMOVED_NS: Final = 1_000_000_000
#: Longer than a start takes, its imports included.
STARTS_NS: Final = 10_000_000_000
_BETWEEN_NS: Final = 350_000_000
_AGAIN_NS: Final = 1_000_000_000
_MAX_AGAIN_NS: Final = 30_000_000_000
#: So often the pause does not grow after a judgement that is unsure.
_MAX_UNSURE: Final = 8
#: Looks in a row that find a rank which burns its core in C, before it counts as one call; and between them.
_HELD_LOOKS: Final = 6
_HELD_NS: Final = 60_000_000
#: How long the stacks of one look may take.
_STACKS_NS: Final = 2_000_000_000
#: At once; the others have their turn later.
_MAX: Final = 8
_OWN_PACKAGE: Final = os.path.dirname(os.path.abspath(distdbg.__file__))

RunInThread = Callable[[Callable[[], Any], Callable[[Future[Any]], None]], None]


@dataclass(slots=True)
class _Case:
    """One rank that is looked at."""

    pid: int
    moved_ns: int
    next_ns: int
    pause_ns: int = _AGAIN_NS
    unsure: int = 0
    first: Look | None = None
    is_busy: bool = False
    held: int = 0
    """In how many looks, one after the other, it seemed to hold the GIL."""
    doubted: RankState | None = None
    """Another state than the one it is in, which it was found in once."""


class CloserLook:
    """Chooses the ranks to look at, and keeps what came of it; `run_in_thread` runs what takes long."""

    def __init__(self, run_in_thread: RunInThread) -> None:
        self._run_in_thread = run_in_thread
        self._cases: dict[int, _Case] = {}

    def tick(self, roster: Roster, now_ns: int) -> None:
        """Begin and forget looks."""
        suspects = {watched.rank: watched for watched in find_suspects(roster, now_ns)}
        for rank in list(self._cases):
            watched = suspects.get(rank)
            case = self._cases[rank]
            if watched is None or (watched.pid, watched.moved_ns) != (case.pid, case.moved_ns):
                del self._cases[rank]
        for rank, watched in suspects.items():
            if rank not in self._cases:
                self._cases[rank] = _Case(watched.pid, watched.moved_ns, now_ns)
        busy = sum(case.is_busy for case in self._cases.values())
        for rank, case in self._cases.items():
            if busy >= _MAX:
                break
            if not case.is_busy and now_ns >= case.next_ns:
                case.is_busy = True
                busy += 1
                self._look(roster, suspects[rank], case)

    def _look(self, roster: Roster, watched: WatchedRank, case: _Case) -> None:
        started = watched.life.started if watched.life else 0
        target = SampledProcess(watched.rank, watched.pid, started, roster.folder)
        is_needed = is_anybody_waiting(roster)
        has_holder = case.first is not None and _has_gil_holder(case.first)
        ranks = {watched.pid: watched.rank for watched in roster.watched_ranks.values()}

        def then(done: Future[Any]) -> None:
            case.is_busy = False
            if self._cases.get(watched.rank) is case and done.exception() is None:
                self._on_look(watched, case, done.result())

        self._run_in_thread(
            lambda: take_look(target, ranks, native=is_needed and has_holder, softly=not is_needed),
            then,
        )

    def _on_look(self, watched: WatchedRank, case: _Case, look: Look | None) -> None:
        now_ns = time.monotonic_ns()
        if (
            watched.is_gone
            or watched.moved_ns != case.moved_ns
            or watched.state is RankState.DEBUGGED
        ):
            return  # it was news when the look began
        if look is None:  # gone in between
            case.next_ns = now_ns + _AGAIN_NS
        elif case.first is None:
            case.first = look
            case.next_ns = now_ns + _BETWEEN_NS
        else:
            found = judge(case.first, look, _OWN_PACKAGE)
            if watched.state is RankState.STARTING:
                watched.place_start(found.state, found.why, found.site, look.stacks)
                case.first, case.next_ns = None, now_ns + case.pause_ns
                case.pause_ns = min(2 * case.pause_ns, _MAX_AGAIN_NS)
                return
            case.held = case.held + 1 if found.state is RankState.HOLDS_GIL else 0
            if is_by_chance(watched.state, found, case.held):
                case.first, case.next_ns = look, now_ns + _HELD_NS
                return
            if is_doubtful(watched.state, found.state, case.doubted):
                case.doubted, case.first, case.next_ns = found.state, None, now_ns + _AGAIN_NS
                return
            case.doubted = None
            is_new = watched.change(found.state, now_ns, found.why, found.site)
            if is_new and watched.since_ns == now_ns:
                watched.cpu_since_s = look.cpu_s
            watched.is_busy, watched.stacks = found.is_busy, look.stacks
            case.first = None
            case.next_ns = now_ns + case.pause_ns
            case.unsure += found.is_unsure
            if not found.is_unsure or case.unsure > _MAX_UNSURE:
                case.pause_ns = min(2 * case.pause_ns, _MAX_AGAIN_NS)


def is_doubtful(state: RankState, found: RankState, before: RankState | None) -> bool:
    """Whether to look once more before it is another state: a rank that has not moved seldom changes.

    What it is in is shown to people; it must not flip with each look at a loop that sleeps now and then.
    """
    return state.is_stuck and found is not state and found is not before


def is_by_chance(state: RankState, found: StuckJudgement, held: int) -> bool:
    """Whether a loop of short calls, such as time.time(), may look like one call that does not return.

    A look finds such a loop in C about every other time; a call that does not return, each time.
    """
    is_new = found.state is RankState.HOLDS_GIL and state is not RankState.HOLDS_GIL
    return is_new and found.is_busy and held < _HELD_LOOKS


def find_suspects(roster: Roster, now_ns: int) -> list[WatchedRank]:
    """The ranks in no op without progress for a second, if any rank waits or none makes progress.

    And those that have not made their first group for so long that others may wait for them there.
    """
    unmoved = roster.unmoved(now_ns, UNMOVED_NS)
    living = [watched for watched in roster.watched_ranks.values() if not watched.is_gone]
    starting = [
        watched
        for watched in roster.unmoved(now_ns, STARTS_NS)
        if watched.state is RankState.STARTING and watched.life is not None
    ]
    if not is_anybody_waiting(roster) and len(unmoved) < len(living):
        return starting
    return starting + [
        watched
        for watched in unmoved
        if watched.life is not None
        and watched.record is not None
        and watched.state not in (RankState.STOPPED, RankState.TRACED, RankState.DEBUGGED)
        and not (watched.standing and watched.standing.is_waiting)
    ]


def is_anybody_waiting(roster: Roster) -> bool:
    """Whether a rank of this host waits for others."""
    return any(watched.state is RankState.WAITING for watched in roster.watched_ranks.values())


def take_look(
    target: SampledProcess, ranks: Mapping[int, int], *, native: bool, softly: bool
) -> Look | None:
    """Look at a process now; None when it is gone. `ranks` by their pids, for who keeps a file lock."""
    began_ns = time.monotonic_ns()
    stat = read_stat(target.pid)
    thread = read_main_thread(target.pid)
    if stat is None or (target.started and stat.started != target.started):
        return None
    # Nothing stops a process that is in the kernel, and whoever tries waits with it.
    stacks = None
    if stat.state != "D":
        stacks = take_one(target, began_ns + _STACKS_NS, native=native, softly=softly)
    holder = child = awaited = sender = ""
    is_locked = False
    if stat.state == "S":
        is_locked = thread is not None and thread.is_futex and are_children_locked(target.pid)
        child = dead_child(target.pid)
        if thread is not None and thread.wchan in CHILD_WAITS:
            awaited = awaited_child(target.pid)
        if thread is not None and thread.reads_fd is not None:
            sender = read_end(target.pid, thread.reads_fd, ranks)
        if thread is not None and thread.wchan in FILE_LOCKS:
            # The kernel gives the table piece by piece: a lock may slip through while others come and go.
            found = lock_holder(read_locks(), target.pid) or lock_holder(read_locks(), target.pid)
            holder = _process_text(found, ranks)
    return Look(
        began_ns,
        stat.state,
        stat.cpu_s,
        thread,
        stacks,
        holder,
        child,
        awaited,
        sender,
        are_children_locked=is_locked,
    )


def _process_text(pid: int, ranks: Mapping[int, int]) -> str:
    if pid in ranks:
        return f"rank {ranks[pid]}"
    return f"pid {pid} ({command_name(pid)})" if pid else ""


def _has_gil_holder(look: Look) -> bool:
    return look.stacks is not None and look.stacks.gil_holder is not None
