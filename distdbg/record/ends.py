"""How ranks ended: `ends-<host>.jsonl` in the run folder, one line per rank that is gone.

A record says how far its rank came; it cannot say that the kernel killed it. The process that saw the end
writes it here: the launcher, from the wait status, or the agent, from /proc.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, Self

from distdbg.record.durations import nbytes_text
from distdbg.record.line_file import append_line, known_facts, read_each

Cause = Literal["exited", "signal", "oom", "unknown"]
#: How the hint of a kill begins that nobody has told of.
UNKNOWN_SENDER: Final = "who sent SIGKILL is unknown"
MORE_MEMORY: Final = "smaller batches, fewer ranks on this host, or more memory"
TIMERS: Final = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF)
_CRASHES: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """One rank that is gone. Times are monotonic, of its host."""

    rank: int
    pid: int
    host: str
    ended_ns: int
    wall_ns: int
    cause: Cause
    exit_code: int | None = None
    """The exit code; None: ended by a signal, or nobody knows."""
    signal: int | None = None
    """Also of one that was killed for memory."""
    core_dumped: bool = False
    user_s: float | None = None
    system_s: float | None = None
    max_rss_nbytes: int | None = None
    by: Literal["launcher", "agent"] = "launcher"
    was_asked: bool = False
    """Whether the launcher ended it, because of another rank or because it was told to."""
    asked_ns: int | None = None
    """When it did; None: nobody knows."""
    asked_by: int | None = None
    """The signal by which the launcher was told to end the job; None: it had a reason of its own."""

    @property
    def is_failure(self) -> bool:
        return self.cause != "exited" or self.exit_code != 0

    @property
    def how(self) -> str:
        """'exited with code 3', 'was killed by SIGSEGV (core dumped)', 'was killed for memory ...'."""
        core = " (core dumped)" if self.core_dumped else ""
        if self.cause == "oom":
            used = self.max_rss_nbytes
            size = f"; it had used {nbytes_text(used)}" if used else ""
            return f"was killed for memory (SIGKILL by the kernel{size})"
        if self.signal is not None:
            return f"was killed by {signal_name(self.signal)}{core}"
        if self.exit_code is not None:
            return f"exited with code {self.exit_code}"
        return "is gone; how it ended is unknown"

    @property
    def is_sender_unknown(self) -> bool:
        """Whether it was killed, and not by the kernel for memory."""
        return self.cause != "oom" and self.signal == signal.SIGKILL

    @property
    def hint(self) -> str:
        """What to look at, of a rank that gave no reason itself; '' for an exit."""
        if self.cause == "oom":
            return MORE_MEMORY
        if self.is_sender_unknown:
            if self.by == "launcher":  # which looks at the kernel's counter for every SIGKILL
                return (
                    f"{UNKNOWN_SENDER}: the scheduler, a person, or the program itself; it was "
                    "not the kernel's OOM killer, whose counter did not rise"
                )
            return (
                f"{UNKNOWN_SENDER}: the scheduler, a person, the program itself, or the "
                f"OOM killer (dmesg on {self.host})"
            )
        if self.signal == signal.SIGBUS:
            return (
                "SIGBUS is a mapped file (np.memmap, mmap) that is shorter by now: see who truncates or "
                f"rewrites it; or /dev/shm or a disk is full (df on {self.host})"
            )
        if self.signal in _CRASHES:
            core = "look into the core dump, or " if self.core_dumped else ""
            return f"native code crashed: {core}see its stack in the rank's stderr (PYTHONFAULTHANDLER=1)"
        if self.signal in TIMERS:
            return (
                f"{signal_name(self.signal)} is a timer of the program itself (signal.alarm, setitimer): see "
                "on which path it is set and not cancelled"
            )
        if self.signal == signal.SIGPIPE:
            return (
                "it wrote to a pipe or a socket whose reader had ended, with SIGPIPE's default action, which "
                "Python switches off: see who switches it on"
            )
        if self.signal == signal.SIGINT:
            return (
                "SIGINT came from a scheduler, a person, or another process, or the program raised "
                "KeyboardInterrupt itself, by which Python ends so: see its traceback"
            )
        if self.signal is not None:
            name = signal_name(self.signal)
            return f"{name} came from outside: from a scheduler, a person, or another process"
        return ""

    @property
    def shell_code(self) -> int:
        """What a shell would call it: 128 + n for signals."""
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.exit_code is None else self.exit_code

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """ValueError for what is none."""
        try:
            return cls(**known_facts(cls, text))
        except TypeError as error:
            raise ValueError(str(error)) from None


#: What to do about a rank that ended with a code of its own: Python has printed no error.
BY_SYS_EXIT: Final = (
    "it ended by sys.exit or `raise SystemExit`: look for that line, also where errors are caught"
)


def signal_name(number: int) -> str:
    """'SIGKILL'; 'signal 40' for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ends_name(host: str) -> str:
    """The file of a host in the run folder."""
    return f"ends-{host}.jsonl"


def write_end(folder: Path, end: RankEnd) -> None:
    """Append one line. OSError when it cannot be."""
    append_line(folder / ends_name(end.host), end.to_json())


def read_ends(folder: Path) -> Iterator[RankEnd]:
    """The ends that all hosts wrote; what is no such line is passed over."""
    return read_each(folder, "ends-*.jsonl", RankEnd.from_json)
