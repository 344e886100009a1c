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

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType, ReduceOp


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


class Variant(IntEnum):
    """Functions whose arrays mean something else than those of other functions of their kind.

    Ranks that differ in it called different things, though the arrays may fit. The other names of
    an op (all_gather_single, all_gather_into_tensor, ...) are all PLAIN, and may be mixed.
    """

    PLAIN = 0
    ALL_GATHER_OBJECT = 1
    GATHER_OBJECT = 2
    BROADCAST_OBJECT_LIST = 3
    SCATTER_OBJECT_LIST = 4
    #: The input is this rank's, multiplied by its factor, so the op that is left is SUM.
    PREMUL_SUM = 5
    #: An exchange in which each rank sends to one other.
    PERMUTE = 6
    #: By which ranks in a Join block count those that still have batches: never an all_reduce of a user's.
    JOIN_COUNT = 7
    #: A reduction in the order in which gloo adds up (runtime/plan/gloo_order.py).
    GLOO_ORDER = 8
    #: The same of an all_reduce whose array shares one ring with the others of its block: see `Call.ring`.
    GLOO_RING = 9

    @property
    def is_another_function(self) -> bool:
        """Whether it goes by a name of its own, not by that of its kind."""
        return self not in _SAME_FUNCTION

    @property
    def label(self) -> str:
        """The function: 'all_gather_object'."""
        return self.name.lower()


_GLOO = frozenset({Variant.GLOO_ORDER, Variant.GLOO_RING})
_SAME_FUNCTION = _GLOO | {Variant.PLAIN, Variant.PREMUL_SUM}

#: The reductions that are rounded after each value, so that their order shows.
_ROUNDED = frozenset({RedOpType.SUM, RedOpType.AVG, RedOpType.PRODUCT})


class BlockPart(NamedTuple):
    """The place of a Call in a coalesced block, which ranks must have alike as a whole."""

    place: int
    #: What each op of the block is, in words that all ranks have alike.
    contents: tuple[str, ...]


#: The bits of Call.extra: the Variant, then whether the op goes on with the block of the op before it,
#: then a number for the block's contents and the place in them, of this rank's own choice (40 bits), then
#: what else its words depend on: see `agreed`, or whether a rank has joined.
VARIANT_BITS = 7
GOES_ON = 1 << VARIANT_BITS
PLACE_SHIFT = VARIANT_BITS + 1
WORDS_SHIFT = PLACE_SHIFT + 40
#: The largest number that has room there.
MAX_WORDS = (1 << (63 - WORDS_SHIFT)) - 1

#: Set by a rank that counts in Join after its last batch.
HAS_JOINED = "has joined"

ANY_SOURCE = -1


class Call:
    """Plain slots, not a dataclass: it is made once per op, on the hot path."""

    __slots__ = (
        "agreed",
        "extra",
        "input_splits",
        "inputs",
        "kind",
        "name",
        "op",
        "output_splits",
        "outputs",
        "part",
        "peer",
        "ring",
        "root",
        "side",
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
        extra: int = 0,
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
        #: What a plan depends on beside the arrays, see above; ~ of it where there are splits, since
        #: such plans are not kept.
        self.extra = extra if input_splits is None and output_splits is None else ~extra
        #: None outside of coalesced blocks.
        self.part: BlockPart | None = None
        #: What the op has on a device beside its arrays; None on the host.
        self.side: object = None
        #: Facts beside the arrays that all ranks must have alike: {"gather_dim": 1}.
        self.agreed: Mapping[str, Any] | None = None
        #: Of GLOO_RING: at which byte of the ring the array begins, and how many bytes the ring has. The
        #: block, which ranks compare, says as much.
        self.ring: tuple[int, int] | None = None

    @property
    def variant(self) -> Variant:
        """Which of the functions of this kind that do not mix."""
        extra = self.extra if self.extra >= 0 else ~self.extra
        return Variant(extra & ((1 << VARIANT_BITS) - 1))

    def adds_as_gloo(self, dtype: int) -> bool:
        """Whether it is to reduce arrays of that dtype in gloo's order, and another one would show."""
        if self.variant not in _GLOO or self.op is None or dtype < 0:
            return False
        of = Dtype(dtype)
        return self.op.op in _ROUNDED and (of.is_floating or of.is_complex)

    @property
    def function(self) -> str:
        """The function in the words of mismatches; of a count of Join's also whether the rank has joined."""
        name = self.name or self.kind.label
        if self.variant is not Variant.JOIN_COUNT:
            return name
        return f"{name} ({HAS_JOINED if self.extra >> WORDS_SHIFT else 'next step'})"

    def add_extra(self, bits: int) -> None:
        """Set further bits of `extra`."""
        self.extra = self.extra | bits if self.extra >= 0 else self.extra & ~bits


class LikeCall(Call):
    """A Call with arrays of its own that is like another one in all else: quicker to make, slower to read."""

    __slots__ = ("_like",)

    def __init__(self, like: Call, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self._like = like
        self.kind = like.kind  # ops in flight are compared by it
        self.inputs = inputs
        self.outputs = outputs

    def __getattr__(self, name: str) -> Any:
        # Of a slot that is empty here.
        if name == "_like":
            raise AttributeError(name)
        return getattr(self._like, name)
