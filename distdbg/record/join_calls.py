"""The calls of init_process_group on a host: `joins-<host>.jsonl` in the folder of a start.

A rank has no record before its first group is made, so nothing else tells that it waits there, for how many
ranks, and where it looks for them. A line is written when the call begins, when it has reached the store in
which the ranks meet, and when it is over; only where a launcher has named the folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal, Self, get_args

from distdbg.record.line_file import append_line, known_facts, read_each
from distdbg.record.recorded_frame import RecordedFrame

#: 'ended': by its launcher, which says so; its process may take a while to go.
JoinStep = Literal["called", "connected", "joined", "failed", "ended"]

CALL: Final = "init_process_group"
PATTERN: Final = "joins-*.jsonl"
#: What torch raises where ranks do not come in time, and where the one that serves its store has given up.
_GAVE_UP: Final = re.compile(
    r"Dist(?:Store|Network|Backend)Error: .*(?i:timed? ?out|clients joined|connection was likely closed)"
    r"|RuntimeError: .*(?i:timed? ?out)"
)
#: What ends a call from outside, of this rank or of one that it waits with: it had waited until then.
_ENDED_BY_OTHERS: Final = re.compile(
    r"KeyboardInterrupt|SystemExit|JobAborted|RendezvousError: rank \d+ was interrupted "
)
_NUMBERS: Final = ("rank", "pid", "since_ns", "as_rank", "world_size", "started", "step_ns",
            "wall_ns")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCall:
    """One call, as far as it has come. Times are monotonic, of its host; -1 stands for what is not known."""

    rank: int
    """What the launcher called the process."""
    pid: int
    host: str
    since_ns: int
    wall_ns: int = -1
    """The same moment on the clock of the wall."""
    as_rank: int = -1
    """Which rank the call says that this process is."""
    world_size: int = -1
    """How many ranks the call waits for."""
    started: int = -1
    """How many the launcher has started: WORLD_SIZE."""
    where: str = ""
    """Where the ranks meet: 'tcp://n01:29500'; '' where the launcher has a place for them."""
    stack: tuple[RecordedFrame, ...] = ()
    """The stack of the program: the innermost line first."""
    step: JoinStep = "called"
    step_ns: int = -1
    is_connected: bool = False
    """Whether it has reached the store."""
    error: str = ""
    """What it raised, as one line: 'DistStoreError: Timed out after ...'."""

    @property
    def is_waiting(self) -> bool:
        """Whether the call goes on, or went on until somebody ended its process."""
        if self.step == "failed":
            return _ENDED_BY_OTHERS.match(self.error) is not None
        return self.step != "joined"

    @property
    def gave_up(self) -> bool:
        """Whether the rank itself waited no longer."""
        return self.step == "failed" and _GAVE_UP.match(self.error) is not None

    @property
    def waited_until_ns(self) -> int | None:
        """When the wait was ended from outside; None where it goes on, as far as is known."""
        return self.step_ns if self.is_waiting and self.step in ("failed", "ended") else None

    @property
    def site(self) -> str:
        """'job.py:23 (connect)'; ''."""
        if not self.stack:
            return ""
        file, line, function = self.stack[0]
        return f"{os.path.basename(file)}:{line} ({function})"

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"stack": [list(frame) for frame in self.stack]})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """ValueError for what is none."""
        facts = known_facts(cls, text)
        try:
            facts["stack"] = tuple(
                RecordedFrame(str(file), int(line), str(function))
                for file, line, function in facts.get("stack", ())
            )
            call = cls(**facts)
        except (KeyError, TypeError) as error:
            raise ValueError(str(error)) from None
        texts = (call.host, call.where, call.error)
        if any(type(getattr(call, name)) is not int for name in _NUMBERS):
            raise ValueError("a number is expected")
        if type(call.is_connected) is not bool:
            raise ValueError("true or false is expected")
        if not all(isinstance(one, str) for one in texts) or call.step not in get_args(JoinStep):
            raise ValueError("a text is expected")
        return call


def too_many(size: int, started: int) -> str:
    """The hint where a call asks for more ranks than WORLD_SIZE; ''."""
    if not 0 < started < size:
        return ""
    were = "rank was" if started == 1 else "ranks were"
    return f"{CALL}(world_size={size}), but {started} {were} started (WORLD_SIZE={started})"


def write_join_call(folder: Path, call: JoinCall) -> None:
    """Append one line. OSError when it cannot be."""
    append_line(folder / f"joins-{call.host}.jsonl", call.to_json())


def read_join_calls(folder: Path) -> dict[tuple[str, int], JoinCall]:
    """The last call of each process, by host and pid; what is no such line is passed over."""
    return {(call.host, call.pid): call for call in _calls(folder)}


def _calls(folder: Path) -> Iterator[JoinCall]:
    return read_each(folder, PATTERN, JoinCall.from_json)


def note_ended(folder: Path, at_ns: int) -> None:
    """A launcher is about to end the processes that wait there."""
    for call in read_join_calls(folder).values():
        if call.step in ("called", "connected"):
            with suppress(OSError):
                write_join_call(folder, replace(call, step="ended", step_ns=at_ns))


def has_join_calls(folder: Path) -> bool:
    """Whether some process that a launcher started has called it."""
    return next(_calls(folder), None) is not None
