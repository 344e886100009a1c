"""One op as every layer sees it: what the API makes of a call, before any byte moves.

A `Call` holds the user's arrays as they were given, already checked for what one rank can see
alone. Blocks: `inputs` and `outputs` are either one array per block, or one flat array that
`input_splits`/`output_splits` cut along its first dimension. Ranks in a Call are group ranks.

    In place: `inputs is outputs`, one tuple. all_reduce and reduce may also have an input of their
    own beside the output: the scaled copy of PREMUL_SUM, with op SUM.

    kind            inputs                      outputs
    broadcast       (x,)                        (x,)           same array, in place; root sends
    all_reduce      (x,)                        (x,)           same array, in place
    reduce          (x,)                        (x,) on root, else ()
    all_gather      (x,)                        n arrays, or one flat
    gather          (x,)                        n arrays on root, else ()
    scatter         n arrays on root, else ()   (x,)
    reduce_scatter  n arrays, or one flat       (x,)
    all_to_all      n arrays, or one flat       n arrays, or one flat
    barrier         ()                          ()
    send            (x,)                        ()             peer, tag
    recv            ()                          (x,)           peer (-1: any), tag
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from distdbg.runtime.reduce_op import ReduceOp


class Kind(IntEnum):
    """What an op does; the numbers are part of the wire and of the record."""

    BROADCAST = 0
    ALL_REDUCE = 1
    REDUCE = 2
    ALL_GATHER = 3
    GATHER = 4
    SCATTER = 5
    REDUCE_SCATTER = 6
    ALL_TO_ALL = 7
    BARRIER = 8
    SEND = 9
    RECV = 10

    @property
    def label(self) -> str:
        """The spelling in messages and records: 'all_reduce'."""
        return self.name.lower()


ANY_SOURCE = -1


class Call:
    """Plain slots, not a dataclass: it is made once per op, on the hot path."""

    __slots__ = (
        "input_splits",
        "inputs",
        "kind",
        "name",
        "op",
        "output_splits",
        "outputs",
        "peer",
        "root",
        "tag",
        "timeout_s",
    )

    def __init__(
        self,
        kind: Kind,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        op: ReduceOp | None = None,
        root: int = -1,
        peer: int = -1,
        tag: int = 0,
        input_splits: Sequence[int] | None = None,
        output_splits: Sequence[int] | None = None,
        timeout_s: float | None = None,
        name: str | None = None,
    ) -> None:
        self.kind = kind
        self.inputs = inputs
        self.outputs = outputs
        self.op = op
        self.root = root
        self.peer = peer
        self.tag = tag
        self.input_splits = input_splits
        self.output_splits = output_splits
        #: None: the group's timeout.
        self.timeout_s = timeout_s
        #: The function the user called when it is not the kind's label ("all_gather_into_tensor").
        self.name = name
