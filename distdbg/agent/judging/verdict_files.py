"""Writes the verdict into the run folder: verdict.json, stacks and sightings of the ranks of the cause.

    verdict.json            `render.plain.to_plain`: what is wrong now; removed when all ranks go on
    seen-<host>.jsonl       a line for each rank that got stuck, is busy while others wait, goes on, or
                            is the cause
    rank00003.stacks.txt    the stacks of a rank of the cause, as faulthandler writes them

The job needs none of it: what cannot be written is skipped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from distdbg.agent.take_stacks import SampledProcess, ask_faulthandler, take_stacks
from distdbg.follow.stacks import RankStacks, ThreadStack, read_faulthandler
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.folders import VERDICT_NAME
from distdbg.record.observations import Observation, names_a_process, write_sighting
from distdbg.record.rank_state import RankState
from distdbg.record.stack_file import stacks_name
from distdbg.record.verdict_file import write_verdict_file

#: A job that is about to be ended waits for the stacks of its ranks no longer than this.
STACKS_NS: Final = 300_000_000
#: What one of them may take to answer a signal.
_ANSWER_NS: Final = 100_000_000
_MAX_RANKS: Final = 8
#: Lines about ranks that are busy: in a job that is slow at each step they do not end.
_MAX_BUSY: Final = 2000
_MAX_FRAMES: Final = 64


def write_verdict(folder: Path, plain: dict[str, Any]) -> None:
    """Put it in place at once, so that nobody reads half of it."""
    write_verdict_file(folder, f"{json.dumps(plain, indent=1)}\n".encode())


def withdraw_verdict(folder: Path) -> None:
    """What it says is over, and the job goes on or has ended well."""
    with suppress(OSError):
        (folder / VERDICT_NAME).unlink()


class ObservationWriter:
    """Writes what changes of ranks that do not move though others wait for them."""

    def __init__(self) -> None:
        self._written: dict[int, tuple[int, RankState, str]] = {}
        self._left = _MAX_BUSY

    def look(self, folder: Path, watched_ranks: Iterable[WatchedRank]) -> None:
        """Write of those that got stuck, or are busy somewhere, or neither of it any more."""
        for watched in watched_ranks:
            now = _key(watched)
            known = self._written.get(watched.rank)
            if known is None or known[0] != watched.pid:
                known = watched.pid, RankState.RUNNING, ""
            if watched.is_gone or now == known:
                continue
            if watched.state.is_stuck or known[1].is_stuck or _is_placed_start(watched):
                self.write(folder, watched)
            elif self._left > 0 and (now[2] or known[2]):
                self._left -= 1
                self.write(folder, watched)

    def write(self, folder: Path, watched: WatchedRank, stacks: RankStacks | None = None) -> None:
        self._written[watched.rank] = _key(watched)
        stacks = stacks or watched.stacks
        main = stacks.main if stacks is not None else None
        frames = main.python[:_MAX_FRAMES] if main is not None else ()
        seen = Observation(
            rank=watched.rank,
            pid=watched.pid,
            host=watched.host,
            state=_state_of(watched),
            # A rank that runs is at another place after each op.
            since_ns=max(watched.since_ns, watched.progress_ns if is_busy(watched) else 0),
            why=watched.why,
            site=watched.site,
            stack=tuple((frame.file, frame.line, frame.function) for frame in frames),
            longest_gap_ns=watched.longest_gap_ns,
        )
        with suppress(OSError):
            write_sighting(folder, seen)


def _key(watched: WatchedRank) -> tuple[int, RankState, str]:
    """What a rank is in; another one is written down."""
    if is_busy(watched):
        return watched.pid, watched.state, watched.site
    if _is_placed_start(watched):
        return watched.pid, _state_of(watched), watched.site
    is_named = watched.state.is_stuck and names_a_process(watched.why)
    return watched.pid, watched.state, watched.why if is_named else ""


def _is_placed_start(watched: WatchedRank) -> bool:
    """Whether it has no record yet, and a close look has found where it is."""
    return watched.state is RankState.STARTING and watched.starts_in is not None


def _state_of(watched: WatchedRank) -> RankState:
    return watched.starts_in or watched.state if _is_placed_start(watched) else watched.state


def is_busy(watched: WatchedRank) -> bool:
    """Whether a close look has found where in its own code it is."""
    return watched.state is RankState.RUNNING and bool(watched.site)


def targets_of(watched_ranks: Iterable[WatchedRank], folder: Path) -> list[SampledProcess]:
    """The processes whose stacks are worth taking."""
    return [
        SampledProcess(watched.rank, watched.pid, watched.life.started, folder)
        for watched in watched_ranks
        if watched.life is not None and watched.state is not RankState.BLOCKED_IO
    ][:_MAX_RANKS]


def take_cause_stacks(
    targets: Sequence[SampledProcess], waiting: Collection[int]
) -> list[RankStacks]:
    """Take their stacks and keep them beside their records.

    Those that are `waiting` answer a signal in less time than it takes to start another program.
    """
    deadline_ns = time.monotonic_ns() + STACKS_NS
    taken = [_stacks_by_signal(target, deadline_ns) for target in targets if target.rank in waiting]
    known = {one.rank for one in taken if one.threads}
    rest = [target for target in targets if target.rank not in known]
    taken = [one for one in taken if one.threads]
    taken += take_stacks(rest, deadline_ns, native=False)
    folders = {target.rank: target.folder for target in targets}
    for one in taken:
        if one.threads:
            _write(folders[one.rank] / cause_stacks_name(one.rank), _to_text(one.threads))
    return taken


def _stacks_by_signal(target: SampledProcess, deadline_ns: int) -> RankStacks:
    text, why = ask_faulthandler(target, min(deadline_ns, time.monotonic_ns() + _ANSWER_NS))
    threads = read_faulthandler(text)
    return RankStacks(
        rank=target.rank, pid=target.pid, threads=threads, how="faulthandler", why_not=why
    )


def cause_stacks_name(rank: int) -> str:
    """The file of a rank; the rank's own is gone when its process leaves."""
    return f"{stacks_name(rank)}.txt"


def _write(path: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(OSError):
        fd = os.open(path, flags, 0o600)
        try:
            os.write(fd, text.encode("utf-8", "replace"))
        finally:
            os.close(fd)


def _to_text(threads: Sequence[ThreadStack]) -> str:
    """Write stacks as faulthandler does: the main thread last."""
    lines = []
    for thread in sorted(threads, key=lambda thread: thread.is_main):
        name = f" [{thread.name}]" if thread.name else ""
        lines.append(f"Thread 0x{thread.thread_id or 0:016x}{name} (most recent call first):")
        lines += [f'  File "{f.file}", line {f.line} in {f.function}' for f in thread.python]
        lines.append("")
    return "\n".join(lines) + "\n"
