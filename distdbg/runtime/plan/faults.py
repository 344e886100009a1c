"""What can be wrong with plans, and where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """What can be wrong with plans."""

    DIFFERENT_ALGORITHMS = "different algorithms"
    DEADLOCK = "deadlock"
    NO_GATE = "no gate"
    WRONG_RESULT = "wrong result"
    RACE = "race"
    SLOT_REWRITTEN = "slot written twice before one gate"
    SLOT_OVERFLOW = "slot overflow"
    TOO_EARLY = "before the first gate"
    TOO_LATE = "after the last gate"
    NOT_RELEASED = "no gate after reading a peer's array"
    NOT_REACHABLE = "a peer's array cannot be read"
    OUT_OF_BOUNDS = "outside of the block"
    OVERLAP = "source and destination overlap"
    PART_OF_ELEMENT = "part of an element"
    READ_ONLY = "input written"
    OTHER_HOST = "memory of another host"
    SAME_HOST = "a message within a host"
    WRONG_SIZE = "a message of another size"
    NOT_RECEIVED = "a message that nobody receives"
    SENT_REWRITTEN = "written while it is sent"
    DIFFERENT_BITS = "folded in another order than elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong; `step` is -1 when it is the plan as a whole."""

    kind: FaultKind
    rank: int
    step: int = -1
    text: str

    def __str__(self) -> str:
        where = f"rank {self.rank}" if self.step < 0 else f"rank {self.rank} step {self.step}"
        return f"{where}: {self.kind}: {self.text}"
