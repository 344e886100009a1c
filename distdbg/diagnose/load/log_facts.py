"""A fact from one line of a log, before it becomes part of a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from distdbg.diagnose.load.log_lines import LoggedLine


class FactShape(Enum):
    """What kind of thing a line states; the order says what explains what, causes first."""

    OOM_KILL = auto()
    KILLED = auto()  # by a signal that nobody here sent
    GPU_ERROR = auto()
    RAISED = auto()  # the end of a traceback
    STOPPED = auto()
    PORT_TAKEN = auto()
    MISMATCH = auto()
    SIZES = auto()  # gloo received what has no room
    DDP_DIFFERS = auto()
    DDP_UNUSED = auto()
    NOT_JOINED = auto()  # ranks that did not come to the rendezvous
    MISSING = auto()
    NOT_FINISHED = auto()
    PROGRESS = auto()  # how far a rank has come on a group
    STUCK = auto()
    NCCL_WARN = auto()
    TIMEOUT = auto()
    STORE_TIMEOUT = auto()
    REACHED = auto()  # a rank that came, and waited for rank 0
    PEER_CLOSED = auto()
    FOLLOWS = auto()  # says itself that it is because of something else
    ENDED_BY_LAUNCHER = auto()
    CHILD = auto()  # a process of the launcher, and how it ended
    STEP = auto()


@dataclass(slots=True, kw_only=True)
class LoggedFact:
    """One statement, with where it stands."""

    shape: FactShape
    line: LoggedLine
    text: str
    """A clause in our words, or the line's own where those are clear."""
    rank: int | None = None
    """The rank that it is about or that says it; None: not known."""
    ranks: tuple[int, ...] = ()
    """Those it blames."""
    kind: str = ""
    seq: int = 0
    group: str = ""
    pid: int = 0
    numbers: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    site: str = ""
    is_first: bool = False
    """Whether a launcher calls it the first failure."""
