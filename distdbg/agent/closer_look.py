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
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from distdbg.export.outlets.source import RunInThread

NO_PROGRESS_NS: Final = 1_000_000_000
#: From this on a rank without a group counts as stuck: longer than a start takes, its imports included.
STARTS_NS: Final = 10_000_000_000
_BETWEEN_NS: Final = 350_000_000
_FIRST_PAUSE_NS: Final = 1_000_000_000
_MAX_PAUSE_NS: Final = 30_000_000_000
#: The pause grows after a judgement that is unsure too, once there were so many.
_MAX_UNSURE: Final = 8
#: So many looks in a row must find a rank in C that uses its core, before that counts as one call.
_GIL_LOOKS: Final = 6
_BETWEEN_GIL_LOOKS_NS: Final = 60_000_000
#: How long the stacks of one look may take.
_STACKS_NS: Final = 2_000_000_000
#: Ranks that are looked at together; the others have their turn later.
_MAX_AT_ONCE: Final = 8
_OWN_PACKAGE: Final = os.path.dirname(os.path.abspath(distdbg.__file__))


@dataclass(slots=True)
class _Looks:
    """The looks at one rank since it last made progress."""

    pid: int
    progress_ns: int
    next_ns: int
    pause_ns: int = _FIRST_PAUSE_NS
    unsure_count: int = 0
    first: Look | None = None
    is_busy: bool = False
    gil_looks: int = 0
    """How many looks in a row have found that it holds the GIL."""
    unconfirmed: RankState | None = None
    """Another state than the rank has, found by one look so far."""


class CloserLook:
    """Chooses the ranks to look at, and keeps what came of it; `run_in_thread` runs what takes long."""

    def __init__(self, run_in_thread: RunInThread) -> None:
        self._run_in_thread = run_in_thread
        self._looks: dict[int, _Looks] = {}

    def tick(self, roster: Roster, now_ns: int) -> None:
        """Look at the suspects whose turn it is; drop the ranks that have made progress."""
        suspects = {watched.rank: watched for watched in find_suspects(roster, now_ns)}
        for rank, looks in list(self._looks.items()):
            known = suspects.get(rank)
            if known is None or (known.pid, known.progress_ns) != (looks.pid, looks.progress_ns):
                del self._looks[rank]
        for rank, watched in suspects.items():
            if rank not in self._looks:
                self._looks[rank] = _Looks(watched.pid, watched.progress_ns, now_ns)
        busy = sum(looks.is_busy for looks in self._looks.values())
        for rank, looks in self._looks.items():
            if busy >= _MAX_AT_ONCE:
                break
            if not looks.is_busy and now_ns >= looks.next_ns:
                looks.is_busy = True
                busy += 1
                self._look(roster, suspects[rank], looks)

    def _look(self, roster: Roster, watched: WatchedRank, looks: _Looks) -> None:
        started = watched.life.started if watched.life else 0
        target = SampledProcess(watched.rank, watched.pid, started, roster.folder)
        is_needed = is_anybody_waiting(roster)
        has_holder = looks.first is not None and _has_gil_holder(looks.first)
        ranks = {watched.pid: watched.rank for watched in roster.watched_ranks.values()}

        def then(done: Future[Any]) -> None:
            looks.is_busy = False
            if self._looks.get(watched.rank) is looks and done.exception() is None:
                self._on_look(watched, looks, done.result())

        self._run_in_thread(
            lambda: take_look(
                target, ranks, native=is_needed and has_holder, nonblocking=not is_needed
            ),
            then,
        )

    def _on_look(self, watched: WatchedRank, looks: _Looks, look: Look | None) -> None:
        now_ns = time.monotonic_ns()
        if (
            watched.is_gone
            or watched.progress_ns != looks.progress_ns
            or watched.state is RankState.DEBUGGED
        ):
            return  # it has made progress since the look began
        if look is None:  # the process is gone
            looks.next_ns = now_ns + _FIRST_PAUSE_NS
        elif looks.first is None:
            looks.first = look
            looks.next_ns = now_ns + _BETWEEN_NS
        else:
            found = judge(looks.first, look, _OWN_PACKAGE)
            if watched.state is RankState.STARTING:
                watched.place_start(found.state, found.why, found.site, look.stacks)
                looks.first, looks.next_ns = None, now_ns + looks.pause_ns
                looks.pause_ns = min(2 * looks.pause_ns, _MAX_PAUSE_NS)
                return
            looks.gil_looks = looks.gil_looks + 1 if found.state is RankState.HOLDS_GIL else 0
            if may_be_short_calls(watched.state, found, looks.gil_looks):
                looks.first, looks.next_ns = look, now_ns + _BETWEEN_GIL_LOOKS_NS
                return
            if needs_confirmation(watched.state, found.state, looks.unconfirmed):
                looks.unconfirmed, looks.first, looks.next_ns = (
                    found.state,
                    None,
                    now_ns + _FIRST_PAUSE_NS,
                )
                return
            looks.unconfirmed = None
            is_new = watched.change(found.state, now_ns, found.why, found.site)
            if is_new and watched.since_ns == now_ns:
                watched.cpu_since_s = look.cpu_s
            watched.is_busy, watched.stacks = found.is_busy, look.stacks
            looks.first = None
            looks.next_ns = now_ns + looks.pause_ns
            looks.unsure_count += found.is_unsure
            if not found.is_unsure or looks.unsure_count > _MAX_UNSURE:
                looks.pause_ns = min(2 * looks.pause_ns, _MAX_PAUSE_NS)


def needs_confirmation(state: RankState, found: RankState, before: RankState | None) -> bool:
    """Whether a second look must find the same state before the rank gets it.

    The state is shown to people, and must not flip with each look at a loop that sleeps now and then.
    """
    return state.is_stuck and found is not state and found is not before


def may_be_short_calls(state: RankState, found: StuckJudgement, gil_looks: int) -> bool:
    """Whether it may be a loop of short calls, such as time.time(), and not one call that does not return.

    A look finds such a loop in C about every other time; a call that does not return, each time.
    """
    is_new = found.state is RankState.HOLDS_GIL and state is not RankState.HOLDS_GIL
    return is_new and found.is_busy and gil_looks < _GIL_LOOKS


def find_suspects(roster: Roster, now_ns: int) -> list[WatchedRank]:
    """The ranks that are in no op and without progress for a second, while any rank waits or none moves on.

    Also those that have had no group for `STARTS_NS`: others may wait for them there.
    """
    without_progress = roster.without_progress(now_ns, NO_PROGRESS_NS)
    living = [watched for watched in roster.watched_ranks.values() if not watched.is_gone]
    starting = [
        watched
        for watched in roster.without_progress(now_ns, STARTS_NS)
        if watched.state is RankState.STARTING and watched.life is not None
    ]
    if not is_anybody_waiting(roster) and len(without_progress) < len(living):
        return starting
    return starting + [
        watched
        for watched in without_progress
        if watched.life is not None
        and watched.record is not None
        and watched.state not in (RankState.STOPPED, RankState.TRACED, RankState.DEBUGGED)
        and not (watched.current_ops and watched.current_ops.is_waiting)
    ]


def is_anybody_waiting(roster: Roster) -> bool:
    """Whether a rank of this host waits for others."""
    return any(watched.state is RankState.WAITING for watched in roster.watched_ranks.values())


def take_look(
    target: SampledProcess, ranks: Mapping[int, int], *, native: bool, nonblocking: bool
) -> Look | None:
    """Look at a process now; None when it is gone. `ranks`, by their pids, name the holder of a file lock."""
    began_ns = time.monotonic_ns()
    stat = read_stat(target.pid)
    thread = read_main_thread(target.pid)
    if stat is None or (target.started and stat.started != target.started):
        return None
    # Nothing stops a process that is in the kernel, and whoever tries waits with it.
    stacks = None
    if stat.state != "D":
        stacks = take_one(target, began_ns + _STACKS_NS, native=native, nonblocking=nonblocking)
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
