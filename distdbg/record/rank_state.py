"""RankState: what a rank is doing, as seen from outside; shared by agents, diagnosis and views."""

from __future__ import annotations

from enum import StrEnum

#: Of a rank whose record has no op.
NO_OP_YET = "has called no op yet"


class RankState(StrEnum):
    """What a rank is doing, as seen from outside."""

    STARTING = "starting"  # a process, no record yet
    RUNNING = "running"  # its own code, or an op that makes progress
    WAITING = "waiting"  # in an op, for others
    STOPPED = "stopped"  # SIGSTOP, or a stop from the terminal
    TRACED = "traced"  # stopped by a debugger from outside, as gdb is one
    DEBUGGED = "in the debugger"  # at the prompt of ours; the clock of the job stands
    HOLDS_GIL = "holds the GIL"  # one call that does not return and lets no other thread run
    BUSY = "busy"  # uses its CPU and reaches no op: at work, as a rule
    BLOCKED_IO = "blocked in I/O"  # uninterruptible: a disk or network file system does not answer
    ASLEEP = "asleep"  # uses no CPU, outside any op: a lock, a system call, time.sleep
    LEFT = "left"  # destroyed its groups; the process is alive
    ENDED = "ended"  # exited with code 0
    FAILED = "failed"  # exited with another code, or raised
    DEAD = "dead"  # killed

    @property
    def is_stuck(self) -> bool:
        """Alive, in no op, and in what may last; what that is worth at which age: `thresholds`."""
        return self in _STUCK

    @property
    def is_over(self) -> bool:
        return self in (RankState.ENDED, RankState.FAILED, RankState.DEAD)


_STUCK = frozenset(
    (RankState.STOPPED, RankState.TRACED, RankState.HOLDS_GIL, RankState.BUSY,
     RankState.BLOCKED_IO, RankState.ASLEEP)
)  # fmt: skip
