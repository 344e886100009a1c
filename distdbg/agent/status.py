"""One rank as its host's agent sees it: the row that the API shows and that goes up the tree. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RankState(StrEnum):
    """What a rank is doing, as seen from outside."""

    STARTING = "starting"  # a process, no record yet
    RUNNING = "running"  # its own code, or an op that moves
    WAITING = "waiting"  # in an op, for others
    STOPPED = "stopped"  # SIGSTOP, or a stop from the terminal
    TRACED = "traced"  # stopped in a debugger
    HOLDS_GIL = "holds the GIL"  # one call that does not return and lets no other thread run
    LOOPS = "loops"  # burns its core without getting to an op
    BLOCKED_IO = "blocked in I/O"  # uninterruptible: a disk or network file system does not answer
    SLEEPS = "sleeps"  # in a system call or a lock, outside any op
    LEFT = "left"  # destroyed its groups; the process lives
    ENDED = "ended"  # exited with code 0
    FAILED = "failed"  # exited with another code, or raised
    DEAD = "dead"  # killed

    @property
    def is_stuck(self) -> bool:
        """Alive and known not to move by itself."""
        return self in _STUCK

    @property
    def is_over(self) -> bool:
        return self in (RankState.ENDED, RankState.FAILED, RankState.DEAD)


_STUCK = frozenset(
    (RankState.STOPPED, RankState.TRACED, RankState.HOLDS_GIL, RankState.LOOPS,
     RankState.BLOCKED_IO, RankState.SLEEPS)
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatus:
    """What is known of one rank now. Ages are seconds at `RankStatus`'s making, not points in time:
    they mean the same on every host."""

    rank: int
    host: str
    pid: int
    state: RankState
    attempt: int = 0
    state_age_s: float = 0.0
    """How long it has been in this state."""
    progress_age_s: float = 0.0
    """Since it last began or ended an op."""
    last_number: int = 0
    """Of the op it issued last, as its record counts."""
    seqs: tuple[tuple[str, int], ...] = ()
    """Per group: its name and the collective issued last."""
    op: str = ""
    """The op it is in: "all_reduce #1042 on group 'dp'"; '' outside any."""
    site: str = ""
    """Where it called that op, or was last seen: 'train.py:88 (step)'."""
    why: str = ""
    """What a person wants to know of the state: 'was killed by SIGSEGV', 'by SIGSTOP from ...'."""
    cpu_s: float = 0.0
    """CPU time the process has used."""
    rss_nbytes: int = 0
