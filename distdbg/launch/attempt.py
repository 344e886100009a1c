"""One start of this host's ranks: from the first process to the last end.

It knows who runs, who has ended and how, and how to end the rest. When to do so is not its business.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from distdbg.launch.ended import AskedToEnd, EndedChild, to_rank_end
from distdbg.launch.memory import OomWatch
from distdbg.launch.warden import Warden
from distdbg.record.ends import RankEnd, write_end

#: Between SIGKILL and giving up on a process that the kernel does not let go.
_KILL_S = 5.0
_SLICE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStart:
    rank: int
    argv: Sequence[str]
    environ: Mapping[str, str]
    stdout_fd: int | None
    """None: the launcher's own."""
    stderr_fd: int | None
    cpus: frozenset[int] | None


class LaunchAttempt:
    def __init__(
        self,
        warden: Warden,
        host: str,
        folder: Path,
        on_end: Callable[[RankEnd], None],
        on_other: Callable[[EndedChild], None],
    ) -> None:
        """`on_other` is told of the warden's children that are not ranks."""
        self.pids: dict[int, int] = {}
        self.running: set[int] = set()
        #: In the order in which they ended.
        self.ends: dict[int, RankEnd] = {}
        self._warden = warden
        self._host = host
        self._folder = folder
        self._on_end = on_end
        self._on_other = on_other
        self._memory = OomWatch()
        self._asked: dict[int, AskedToEnd] = {}

    def start(self, start: RankStart) -> None:
        """Start one rank; DistError when it cannot be started."""
        name = _name(start.rank)
        pid = self._warden.spawn(
            name,
            start.argv,
            start.environ,
            stdout_fd=start.stdout_fd,
            stderr_fd=start.stderr_fd,
            cpus=start.cpus,
        )
        self.pids[start.rank] = pid
        self.running.add(start.rank)
        self._memory.add(name, pid)

    def watch(self, timeout_s: float) -> list[RankEnd]:
        """Wait so long for ranks to end, and note how they did."""
        found = []
        for ended in self._warden.events(timeout_s):
            if _rank_of(ended) in self.running:
                found.append(ended)
            elif _rank_of(ended) < 0:
                self._on_other(ended)
        now_ns = time.monotonic_ns()
        self._memory.refresh(now_ns)
        asked = {_name(rank) for rank in self._asked}
        victims = self._memory.find_victims(found, now_ns, asked)
        ends = []
        for ended in found:
            rank = _rank_of(ended)
            end = to_rank_end(
                ended,
                rank=rank,
                host=self._host,
                wall_ns=time.time_ns() - (now_ns - ended.ended_ns),
                was_oom=ended.name in victims,
                asked=self._asked.get(rank),
            )
            self.running.discard(rank)
            self.ends[rank] = end
            with suppress(OSError):  # the report has it as well
                write_end(self._folder, end)
            self._on_end(end)
            ends.append(end)
        return ends

    @property
    def failures(self) -> list[RankEnd]:
        """The ranks that failed by themselves, in the order of time."""
        return [end for end in self.ends.values() if end.is_failure and not end.was_asked]

    def stop(
        self,
        signum: int,
        timeout_s: float,
        is_hurried: Callable[[], bool],
        stopped_by: int | None = None,
    ) -> None:
        """End what runs: `signum` to whole process groups, after `timeout_s` SIGKILL.

        `is_hurried` is asked now and then; True ends the waiting. `stopped_by` is the signal by which the
        launcher was told to.
        """
        asked = AskedToEnd(time.monotonic_ns(), stopped_by)
        for rank in self.running:
            self._asked.setdefault(rank, asked)
        self._signal(signum)
        if signum != signal.SIGKILL:
            self._signal(signal.SIGCONT)  # who is stopped sees no other signal
        deadline = time.monotonic() + timeout_s
        while self.running and time.monotonic() < deadline and not is_hurried():
            self.watch(min(_SLICE_S, max(deadline - time.monotonic(), 0.0)))
        if self.running:
            self._signal(signal.SIGKILL)
            deadline = time.monotonic() + _KILL_S
            while self.running and time.monotonic() < deadline:
                self.watch(_SLICE_S)

    def notify(self, signum: int) -> int:
        """Send `signum` to the ranks that run, and not to what they have started; returns how many."""
        return sum(
            self._warden.signal(_name(rank), signum, whole_group=False)
            for rank in sorted(self.running)
        )

    def _signal(self, signum: int) -> None:
        for rank in sorted(self.running):
            self._warden.signal(_name(rank), signum, whole_group=True)


def _name(rank: int) -> str:
    return f"rank{rank}"


def _rank_of(ended: EndedChild) -> int:
    """-1 for what is no rank."""
    number = ended.name.removeprefix("rank")
    return int(number) if number != ended.name and number.isdecimal() else -1
