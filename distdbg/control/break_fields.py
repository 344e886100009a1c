"""The events and fields that rules of breakpoints can use. Pure.

The rules themselves are in breakpoints.py; the reference page is made of the tables here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, Protocol

from distdbg.record.entries import KIND_LABELS


class StopCondition(StrEnum):
    """What a rank stops at."""

    OP = "op"
    MISMATCH = "mismatch"
    NAN = "nan"
    TIMEOUT = "timeout"
    EXCEPTION = "exception"
    SIGNAL = "signal"


#: What each of them means, for the reference page and for `--help`.
ABOUT_ON: Final[Mapping[StopCondition, str]] = {
    StopCondition.OP: "the op itself, before anything of it is sent; the default of a rule",
    StopCondition.MISMATCH: "ranks called different things; before the error is raised to the program",
    StopCondition.NAN: "NaN or Inf in an input of the op, before it is sent",
    StopCondition.TIMEOUT: "the op ran into its deadline; before the error is raised",
    StopCondition.EXCEPTION: "the op failed, with whatever error; before it is raised",
    StopCondition.SIGNAL: "SIGUSR1 arrived, wherever the rank is then; only `rank=` applies",
}

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
FieldKind = Literal["ranks", "words", "number", "site"]


@dataclass(frozen=True, slots=True)
class ConditionField:
    """One thing that a condition may ask for."""

    kind: FieldKind
    example: str
    about: str
    choices: tuple[str, ...] = ()
    """All words there are; empty: any."""


FIELDS: Final[Mapping[str, ConditionField]] = {
    "rank": ConditionField("ranks", "rank=0|4-7", "The rank in the job."),
    "kind": ConditionField("words", "kind=all_reduce|barrier", "What the op does.", choices=KIND_LABELS),
    "name": ConditionField("words", "name=all_gather_into_tensor",
        "The function that was called; the kind, where a kind has one function only."),
    "group": ConditionField("words", "group=dp", "The description of the group, or its name."),
    "seq": ConditionField("number", "seq>=42",
        "The number of the op: in its group, or for a message among those to or from its peer."),
    "nbytes": ConditionField("number", "nbytes>1M",
        "Bytes of the inputs, or of the outputs if those are more; K, M and G are powers of 1024."),
    "dtype": ConditionField("words", "dtype=float16", "Of the arrays."),
    "peer": ConditionField("ranks", "peer=1", "Of a send or recv: the rank in the job at the other end."),
    "tag": ConditionField("number", "tag=7", "Of a send or recv."),
    "comm": ConditionField("words", "comm=grads", "The name that `record_comm` gave."),
    "site": ConditionField("site", "site=train.py:88",
        "The line that called it, or the file alone; as much of the path as makes it unique."),
}  # fmt: skip

#: What a condition on a field of each kind may say.
OPERATORS: Final[Mapping[FieldKind, tuple[Operator, ...]]] = {
    "ranks": ("=", "!="),
    "words": ("=", "!="),
    "site": ("=", "!="),
    "number": ("=", "!=", "<", "<=", ">", ">="),
}


class BreakFacts(Protocol):
    """What a rank knows of an op before it is sent. What costs something to know is asked last."""

    @property
    def rank(self) -> int:
        """The rank of this process in the job."""
        ...

    @property
    def kind(self) -> str:
        """'all_reduce'."""
        ...

    @property
    def name(self) -> str:
        """The function that was called."""
        ...

    @property
    def group(self) -> Sequence[str]:
        """All that the group is called."""
        ...

    @property
    def seq(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """The bytes of its inputs, or of its outputs if those are more."""
        ...

    @property
    def dtype(self) -> str:
        """'float32'; '' without arrays."""
        ...

    @property
    def peer(self) -> int | None:
        """The rank in the job; None of what is no message, or of one from any rank."""
        ...

    @property
    def tag(self) -> int | None:
        """None of what is no message."""
        ...

    @property
    def comm(self) -> str:
        """'' where nobody gave a name."""
        ...

    @property
    def site(self) -> str:
        """'/home/me/train.py:88 (step)'."""
        ...
