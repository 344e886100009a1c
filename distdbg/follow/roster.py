"""The ranks of this host over time: start, progress, waits, end.

A tick costs a short read per rank. More is read only of a rank without recent progress: which op it
is in, and the state of its process. `without_progress` lists the ranks that need a closer look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from distdbg.control.sockets import debugger_socket
from distdbg.errors import RecordError, UsageError
from distdbg.follow.joining import note_joins
from distdbg.follow.process_ends import Life, Outcome
from distdbg.follow.processes import (
    find_tracer,
    has_stopped_itself,
    read_main_thread,
    read_stat,
)
from distdbg.follow.status import RankStatus
from distdbg.follow.stuck import describe_block
from distdbg.follow.tail import CurrentOps, RecordTail
from distdbg.follow.watched_rank import WatchedRank, show_site
from distdbg.launch.ended import EndedChild
from distdbg.launch.memory import OomWatch
from distdbg.record.ends import RankEnd, write_end
from distdbg.record.entries import Pulse
from distdbg.record.observations import STOPPED_ITSELF
from distdbg.record.rank_list import ranks_of_world
from distdbg.record.rank_state import RankState
from distdbg.record.rank_words import read_boot_id, read_exit_text
from distdbg.view.short_words import raised, shown_end

#: A rank that has not moved for so long is asked where it is.
_NO_PROGRESS_NS: Final = 250_000_000
_SCAN_NS: Final = 500_000_000
_OOM_NS: Final = 5_000_000_000
_STAT_NS: Final = 250_000_000
#: What it has used is known from then on, should it die at once.
_STAT_MOVING_NS: Final = 2_000_000_000
#: How old a row of a rank that moves may be when somebody asks.
_FRESH_NS: Final = 500_000_000
#: A process may be in uninterruptible I/O for a moment.
_BLOCKED_NS: Final = 1_000_000_000

_OVER_WHEN_IT_MOVES: Final = (
    RankState.STOPPED,
    RankState.TRACED,
    RankState.BLOCKED_IO,
    RankState.DEBUGGED,
)


class Roster:
    """The ranks of one start of the job on this host."""

    def __init__(
        self,
        folder: Path,
        host: str,
        *,
        attempt: int = 0,
        pids: Mapping[int, int] | None = None,
        is_reported: bool = False,
        watch: Callable[[Life], None] = lambda _: None,
        unwatch: Callable[[Life], None] = lambda _: None,
    ) -> None:
        """`pids`: the processes that a launcher started; `is_reported`: it says how they end.

        `watch` and `unwatch` are called with each process whose end is to be noticed at once.
        """
        self.folder = folder
        self.host = host
        self.attempt = attempt
        self.watched_ranks: dict[int, WatchedRank] = {}
        self.ends: list[RankEnd] = []
        self._is_reported = is_reported
        self._watch, self._unwatch = watch, unwatch
        self._tail = RecordTail(folder, host)
        self._boot_id = read_boot_id()
        self._scanned_ns = -_SCAN_NS
        self._oom = None if is_reported else OomWatch()
        self._oom_ns = 0
        self._holding: frozenset[int] = frozenset()
        now_ns = time.monotonic_ns()
        for rank, pid in (pids or {}).items():
            self._found_at(rank, pid, 0, now_ns)

    # ------------------------------------------------------------------------------- from moment to moment

    def on_clock(self, is_held: bool, ranks: frozenset[int], now_ns: int) -> None:
        """Whether the clock of the job stands, and which ranks of this host hold it."""
        self._holding = ranks
        for watched in self.watched_ranks.values():
            watched.is_resting = is_held
            if is_held:
                watched.rested_ns = now_ns

    def tick(self, now_ns: int) -> set[int]:
        """Look at all ranks; returns those whose state has changed."""
        changed: set[int] = set()
        if now_ns - self._scanned_ns >= _SCAN_NS:
            self._scanned_ns = now_ns
            for rank in self._tail.scan():
                self._meet(rank, now_ns)
                changed.add(rank)
            changed |= note_joins(self.folder, self.watched_ranks, now_ns)
        if self._oom is not None and now_ns - self._oom_ns >= _OOM_NS:
            self._oom_ns = now_ns
            self._oom.refresh(now_ns)
        for watched in self.watched_ranks.values():
            if watched.end is None and self._look(watched, now_ns):
                changed.add(watched.rank)
        return changed

    def settle(self, now_ns: int) -> None:
        """Look at all records once more, also of ranks that are gone: it is over."""
        self._scanned_ns = now_ns
        for rank in self._tail.scan():
            self._meet(rank, now_ns)
        for watched in self.watched_ranks.values():
            if watched.end is None:
                self._look(watched, now_ns)

    def without_progress(self, now_ns: int, least_ns: int) -> list[WatchedRank]:
        """The ranks that live and have not moved for so long."""
        return [
            watched
            for watched in self.watched_ranks.values()
            if not watched.is_gone and now_ns - watched.progress_ns >= least_ns
        ]

    def is_over(self) -> bool:
        """Whether there were ranks and none of them is left."""
        return bool(self.watched_ranks) and all(
            watched.is_gone for watched in self.watched_ranks.values()
        )

    @property
    def world_size(self) -> int:
        """How many ranks the job has, by the records; 0: there are none yet."""
        records = self._tail.records.values()
        return max((record.header.world_size for record in records), default=0)

    def check_rank(self, rank: int) -> None:
        """UsageError where the job has no such rank."""
        if 0 < self.world_size <= rank:
            ranks = ranks_of_world(self.world_size)
            raise UsageError(f"there is no rank {rank}: the job has {ranks}")

    @property
    def is_debuggable(self) -> bool | None:
        """Whether debuggers may come to ranks that run; None: no rank of this host runs."""
        running = [
            watched for watched in self.watched_ranks.values()
            if watched.record is not None
            and not watched.is_gone
            and watched.state not in (RankState.DEBUGGED, RankState.STARTING)
        ]  # fmt: skip
        if not running:
            return None
        return any((self.folder / debugger_socket(watched.rank)).exists() for watched in running)

    def rows(self, now_ns: int) -> list[RankStatus]:
        for watched in self.watched_ranks.values():
            self._refresh(watched, now_ns)
        return [self.watched_ranks[rank].row(now_ns) for rank in sorted(self.watched_ranks)]

    def freshen(self, now_ns: int) -> None:
        """Read again what processes use, of those of which it was read a while ago."""
        for watched in self.watched_ranks.values():
            if watched.end is None and now_ns - watched.stat_ns >= _FRESH_NS:
                self._read_stat(watched, now_ns)

    def row(self, rank: int, now_ns: int) -> RankStatus:
        """The row of one rank as it was last looked at."""
        return self.watched_ranks[rank].row(now_ns)

    # ------------------------------------------------------------------------------- ends

    def on_gone(self, life: Life, now_ns: int) -> WatchedRank | None:
        """A process that is watched has ended; None when it was none of these."""
        watched = next((s for s in self.watched_ranks.values() if s.life is life), None)
        self._unwatch(life)
        if watched is None:
            life.close()
            return None
        outcome = life.outcome()
        life.close()
        watched.life = None
        if watched.end is None:
            end = _describe(watched, outcome, now_ns)
            if self._was_for_memory(end, now_ns):
                end = replace(end, cause="oom")
            self._end(watched, end, is_final=not self._is_reported)
        return watched

    def on_reported_end(self, end: RankEnd) -> WatchedRank | None:
        """The launcher says how a rank ended: it knows best."""
        watched = self.watched_ranks.get(end.rank)
        if watched is None or (watched.pid and watched.pid != end.pid):
            return None
        self._end(watched, end, is_final=False)
        self.ends = [known for known in self.ends if known.rank != end.rank] + [end]
        return watched

    def close(self) -> None:
        """Let go of all processes and files."""
        for watched in self.watched_ranks.values():
            if watched.life is not None:
                self._unwatch(watched.life)
                watched.life.close()
                watched.life = None
        self._tail.close()

    # ------------------------------------------------------------------------------- one rank

    def _found_at(self, rank: int, pid: int, started: int, now_ns: int) -> WatchedRank:
        old = self.watched_ranks.get(rank)
        if old is not None and old.life is not None:
            self._unwatch(old.life)
            old.life.close()
        watched = WatchedRank(
            rank=rank,
            host=self.host,
            pid=pid,
            attempt=self.attempt,
            progress_ns=now_ns,
            since_ns=now_ns,
        )
        self.watched_ranks[rank] = watched
        with suppress(OSError):  # gone already, or of another pid namespace
            watched.life = Life(pid, started)
            self._watch(watched.life)
            if self._oom is not None:
                self._oom.add(str(rank), pid)
        return watched

    def _meet(self, rank: int, now_ns: int) -> None:
        """A record of this rank has come, gone, or been replaced by another."""
        record = self._tail.records.get(rank)
        watched = self.watched_ranks.get(rank)
        if record is None:
            if watched is not None:
                watched.record = watched.pulse = watched.current_ops = None
            return
        header = record.header
        if watched is None or watched.pid != header.pid:
            started = header.process_start if header.boot_id == self._boot_id else -1
            watched = self._found_at(rank, header.pid, started, now_ns)
            if watched.life is None:
                self._end(watched, _describe(watched, Outcome(), now_ns), is_final=False)
        watched.record = record
        watched.pulse = watched.current_ops = None
        if watched.end is None:
            watched.change(RankState.RUNNING, now_ns)
            return
        with suppress(RecordError):
            watched.pulse = record.pulse()
        self._say_end(watched, now_ns)

    def _look(self, watched: WatchedRank, now_ns: int) -> bool:
        record = watched.record
        if record is None:
            return False
        try:
            pulse = record.pulse()
        except RecordError:
            self._tail.drop(watched.rank)
            watched.record = watched.pulse = watched.current_ops = None
            return True
        is_beat = pulse != watched.pulse and self._is_beat(watched, pulse)
        if pulse != watched.pulse and not is_beat:
            is_first = watched.pulse is None
            watched.pulse = pulse
            if is_first:
                watched.progress_ns = min(now_ns, pulse.heartbeat_ns)
            else:
                watched.move(now_ns)
            watched.current_ops = None
            if pulse.exit_word:
                return self._leave(watched, now_ns)
            if now_ns - watched.stat_ns >= _STAT_MOVING_NS:
                self._read_stat(watched, now_ns)
            if watched.rank in self._holding:  # what is typed at a prompt may move it
                return self._sit(watched, now_ns)
            return watched.change(RankState.RUNNING, now_ns)
        if watched.is_gone:
            return False
        if watched.rank in self._holding:
            return self._sit(watched, now_ns)
        if now_ns - watched.progress_ns < _NO_PROGRESS_NS and not is_beat:
            return False
        return self._look_closer(watched, now_ns)

    def _sit(self, watched: WatchedRank, now_ns: int) -> bool:
        """It is at the prompt of a debugger: its record says why, or the page that it holds the clock."""
        if watched.current_ops is None or (
            watched.current_ops.prompt is None and not watched.is_exact
        ):
            self._stand(watched, now_ns, exactly=True)
        prompt = watched.current_ops.prompt if watched.current_ops is not None else None
        if prompt is None:
            return watched.change(RankState.DEBUGGED, now_ns)
        site = show_site(prompt.site) if prompt.site is not None else ""
        is_new = watched.change(RankState.DEBUGGED, now_ns, prompt.name, site)
        watched.since_ns = prompt.issued_ns
        return is_new

    def _is_beat(self, watched: WatchedRank, pulse: Pulse) -> bool:
        """Whether the rank was merely seen in native code, waiting for the op that it waited for before."""
        if (
            watched.pulse is None
            or watched.pulse._replace(heartbeat_ns=pulse.heartbeat_ns) != pulse
        ):
            return False
        assert watched.record is not None
        try:
            op = watched.record.glance()
            is_in = op is not None and op.ended_ns is None and not op.is_async
            if not is_in and not watched.record.work_waits():
                return False
        except RecordError:
            return False
        watched.pulse = pulse
        return True

    def _look_closer(self, watched: WatchedRank, now_ns: int) -> bool:
        if watched.current_ops is not None and watched.current_ops.prompt is not None:
            return self._sit(watched, now_ns)
        if now_ns - watched.stat_ns >= _STAT_NS:
            self._read_stat(watched, now_ns)
        letter = watched.stat.state if watched.stat else "R"
        if letter == "T":
            if watched.state is RankState.STOPPED:
                return False
            why = (
                STOPPED_ITSELF if has_stopped_itself(watched.pid) else "by SIGSTOP or a like signal"
            )
            return watched.change(RankState.STOPPED, now_ns, why)
        if letter == "t":
            tracer, name = find_tracer(watched.pid)
            if name in ("py-spy", ""):  # which lets it go at once, or has done so
                return False
            site = watched.site if watched.state is RankState.TRACED else ""
            return watched.change(RankState.TRACED, now_ns, f"by process {tracer} ({name})", site)
        if letter == "D":
            watched.blocked_ns = watched.blocked_ns or now_ns
            if now_ns - watched.blocked_ns >= _BLOCKED_NS:
                why = describe_block(read_main_thread(watched.pid))
                return watched.change(RankState.BLOCKED_IO, now_ns, why)
            return False
        watched.blocked_ns = 0
        if watched.state in _OVER_WHEN_IT_MOVES:
            watched.progress_ns = now_ns  # it begins anew; what it does is looked at later
            watched.stat_ns = 0
            return watched.change(RankState.RUNNING, now_ns)
        if watched.current_ops is None or not watched.is_exact:
            self._stand(watched, now_ns)
        if watched.current_ops is not None and watched.current_ops.prompt is not None:
            return self._sit(watched, now_ns)
        if watched.current_ops is not None and watched.current_ops.is_waiting:
            return watched.change(RankState.WAITING, now_ns)
        return False

    def _refresh(self, watched: WatchedRank, now_ns: int) -> None:
        if watched.end is not None or watched.record is None:
            return
        if now_ns - watched.stat_ns >= _FRESH_NS:
            self._read_stat(watched, now_ns)
        if watched.current_ops is None and now_ns - watched.looked_ns >= _FRESH_NS:
            self._stand(watched, now_ns)

    def _stand(self, watched: WatchedRank, now_ns: int, *, exactly: bool = False) -> None:
        watched.looked_ns = now_ns
        if watched.record is None:
            return
        try:
            watched.is_exact = now_ns - watched.progress_ns >= _NO_PROGRESS_NS
            if (
                not watched.is_exact and not exactly
            ):  # the op it is in now is over when anybody reads of it
                watched.current_ops = CurrentOps(
                    watched.record.glance(), False, watched.record.groups()
                )
            else:
                watched.current_ops = watched.record.current_ops()
        except RecordError:
            return
        watched.seqs = tuple(
            (group.desc or group.name, far.issued_seq)
            for group, far in watched.current_ops.groups
            if far.closed_ns is None
        )

    def _read_stat(self, watched: WatchedRank, now_ns: int) -> None:
        watched.stat_ns = now_ns
        if watched.life is None:
            return
        stat = read_stat(watched.pid)
        if stat is not None and stat.started == watched.life.started and stat.state not in "ZX":
            watched.stat = stat

    # ------------------------------------------------------------------------------- how it ends

    def _leave(self, watched: WatchedRank, now_ns: int) -> bool:
        assert watched.record is not None
        try:
            how, words = watched.record.state_words()
        except RecordError:
            return False
        if how == "left":
            watched.has_left = True
            return watched.change(RankState.LEFT, now_ns)
        what, where, *_ = read_exit_text(words)
        if how == "raised":
            return watched.change(RankState.RUNNING, now_ns, f"raised {what}", where)
        return watched.change(RankState.RUNNING, now_ns, "its program returned")

    def _was_for_memory(self, end: RankEnd, now_ns: int) -> bool:
        if self._oom is None:
            return False
        ended = EndedChild(
            name=str(end.rank),
            pid=end.pid,
            status=end.signal if end.signal is not None else (end.exit_code or 0) << 8,
            user_s=0.0,
            system_s=0.0,
            max_rss_nbytes=end.max_rss_nbytes or 0,
            ended_ns=now_ns,
        )
        return bool(self._oom.find_victims([ended], now_ns))

    def _end(self, watched: WatchedRank, end: RankEnd, *, is_final: bool) -> None:
        watched.end = end
        self._say_end(watched, end.ended_ns)
        if is_final:
            self.ends.append(end)
            with suppress(OSError):  # the folder is gone, or full: it is known here all the same
                write_end(self.folder, end)

    def _say_end(self, watched: WatchedRank, now_ns: int) -> None:
        end = watched.end
        assert end is not None
        said = at_prompt = ""
        how: str | None = None
        if watched.record is not None:
            with suppress(RecordError):
                watched.pulse = watched.record.pulse()  # what it wrote last
                how, words = watched.record.state_words()
                what, where, *_ = read_exit_text(words)
                if how == "raised":
                    said = raised(what, where)
                if watched.record.current_ops().prompt is not None:
                    at_prompt = " at the prompt of its debugger"
        state, why = shown_end(end, said=said, has_left=how in ("left", "returned"))
        if state is RankState.DEAD:
            why += at_prompt
        watched.change(state, now_ns, why, watched.site if why else "")
        if watched.record is not None and watched.current_ops is None:
            with suppress(RecordError):
                watched.current_ops = watched.record.current_ops()


def _describe(watched: WatchedRank, outcome: Outcome, now_ns: int) -> RankEnd:
    cause: str
    if outcome.signal is not None:
        cause = "signal"
    else:
        cause = "exited" if outcome.exit_code is not None else "unknown"
    return RankEnd(
        rank=watched.rank,
        pid=watched.pid,
        host=watched.host,
        ended_ns=now_ns,
        wall_ns=time.time_ns(),
        cause=cause,  # type: ignore[arg-type]  # one of the three
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        core_dumped=outcome.core_dumped,
        max_rss_nbytes=watched.stat.rss_nbytes if watched.stat else None,
        by="agent",
    )
