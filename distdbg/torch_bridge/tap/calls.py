"""The arguments of torch's c10d ops as Calls. Pure: tensors are looked at, never read.

What each op's arguments are is in torch's schemas (`c10d::allreduce_(Tensor[] tensors, ...)`); here is
only what they mean. Ops on several tensors at once are one Call whose contents must be alike as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from distdbg.ops.call import PLACE_SHIFT, BlockPart, Call, Kind
from distdbg.ops.reduce_op import RedOpType, ReduceOp
from distdbg.runtime.backends.checked.checked_pending import CheckedPending

if TYPE_CHECKING:
    from distdbg.native import QueuedBegin

#: The arguments of one op by the names in its schema.
Arguments = dict[str, Any]


class TapCall(Call):
    """A Call that torch carries out when `start` is called."""

    __slots__ = (
        "checked",
        "is_async",
        "is_method",
        "pending",
        "queued",
        "refusal",
        "result",
        "start",
        "work",
    )

    #: Hands the op back to torch; returns what the op returns.
    start: Callable[[], Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Whether the caller goes on before the op has ended.
        self.is_async = False
        #: Whether `start` is a method of torch's group, which returns the Work itself.
        self.is_method = False
        #: Where it began on its device; None: torch's future tells its end.
        self.queued: QueuedBegin | None = None
        #: What torch has raised instead of starting it.
        self.refusal: Exception | None = None
        self.result: Any = None
        self.work: Any = None
        #: What the engine has made of it.
        self.pending: Any = None
        #: The same with its agreement; None: it is not checked.
        self.checked: CheckedPending | None = None


class SparseFacts:
    """A tensor without strides, as the check sees it."""

    __slots__ = ("device", "dtype", "nbytes", "shape")

    def __init__(self, tensor: Any) -> None:
        self.shape = tensor.shape
        self.dtype = tensor.dtype
        self.device = tensor.device
        self.nbytes = 0


def plain(tensor: Any) -> Any:
    """The tensor itself, unless it has no strides."""
    return SparseFacts(tensor) if tensor.is_sparse else tensor


def reduce_op(value: Any) -> ReduceOp:
    """Torch's ReduceOp (either form) or a functional collective's word as ours."""
    if isinstance(value, str):
        return _WORDS.get(value.lower(), ReduceOp.SUM)
    kind = getattr(value, "op", value)
    return _BY_NUMBER[int(kind)]


#: Torch's numbers are ours.
_BY_NUMBER: dict[int, ReduceOp] = {kind.code: getattr(ReduceOp, kind.name) for kind in RedOpType}

_WORDS: dict[str, ReduceOp] = {
    "sum": ReduceOp.SUM,
    "avg": ReduceOp.AVG,
    "product": ReduceOp.PRODUCT,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
    "band": ReduceOp.BAND,
    "bor": ReduceOp.BOR,
    "bxor": ReduceOp.BXOR,
}

#: Torch's number of the op by the word.
WORD_CODES: dict[str, int] = {word: op.code for word, op in _WORDS.items()}

_CONTENTS = (1 << 40) - 1


def _bundle(call: TapCall, tensors: Sequence[Any]) -> TapCall:
    if len(tensors) > 1:
        words = tuple(f"{str(t.dtype)[6:]}{list(t.shape)}" for t in tensors)
        call.part = BlockPart(0, words)
        call.add_extra(
            (hash(words) & _CONTENTS) << PLACE_SHIFT
        )  # a number for them, of this rank's own
    return call


def _allreduce(a: Arguments, rank: int) -> TapCall:
    tensors = tuple(plain(tensor) for tensor in a["tensors"])
    return _bundle(TapCall(Kind.ALL_REDUCE, tensors, tensors), tensors)


def _allreduce_coalesced(a: Arguments, rank: int) -> TapCall:
    tensors = tuple(a["tensors"])
    call = TapCall(Kind.ALL_REDUCE, tensors, tensors, name="all_reduce_coalesced")
    return _bundle(call, tensors)


def _broadcast(a: Arguments, rank: int) -> TapCall:
    tensors = tuple(plain(tensor) for tensor in a["tensors"])
    return _bundle(TapCall(Kind.BROADCAST, tensors, tensors, root=a["root_rank"]), tensors)


def _reduce(a: Arguments, rank: int) -> TapCall:
    tensors = tuple(a["tensors"])
    outputs = tensors if rank == a["root_rank"] else ()
    return TapCall(Kind.REDUCE, tensors, outputs, root=a["root_rank"])


def _allgather(a: Arguments, rank: int) -> TapCall:
    return TapCall(Kind.ALL_GATHER, tuple(a["input_tensors"]), tuple(a["output_tensors"][0]))


def _allgather_base(a: Arguments, rank: int) -> TapCall:
    inputs, outputs = (a["input_tensor"],), (a["output_tensor"],)
    return TapCall(Kind.ALL_GATHER, inputs, outputs, name="all_gather_into_tensor")


def _allgather_coalesced(a: Arguments, rank: int) -> TapCall:
    inputs = tuple(a["input_list"])
    outputs = tuple(rows[0] for rows in a["output_lists"])
    call = TapCall(
        Kind.ALL_GATHER, inputs[:1], tuple(a["output_lists"][0]), name="all_gather_coalesced"
    )
    return _bundle(call, inputs) if outputs else call


def _allgather_into_coalesced(a: Arguments, rank: int) -> TapCall:
    inputs, outputs = tuple(a["inputs"]), tuple(a["outputs"])
    call = TapCall(
        Kind.ALL_GATHER, inputs[:1], outputs[:1], name="all_gather_into_tensor_coalesced"
    )
    return _bundle(call, inputs)


def _gather(a: Arguments, rank: int) -> TapCall:
    outputs = tuple(a["output_tensors"][0]) if a["output_tensors"] else ()
    return TapCall(Kind.GATHER, tuple(a["input_tensors"]), outputs, root=a["root_rank"])


def _scatter(a: Arguments, rank: int) -> TapCall:
    inputs = tuple(a["input_tensors"][0]) if a["input_tensors"] else ()
    return TapCall(Kind.SCATTER, inputs, tuple(a["output_tensors"]), root=a["root_rank"])


def _reduce_scatter(a: Arguments, rank: int) -> TapCall:
    return TapCall(Kind.REDUCE_SCATTER, tuple(a["input_tensors"][0]), tuple(a["output_tensors"]))


def _reduce_scatter_base(a: Arguments, rank: int) -> TapCall:
    inputs, outputs = (a["input_tensor"],), (a["output_tensor"],)
    return TapCall(Kind.REDUCE_SCATTER, inputs, outputs, name="reduce_scatter_tensor")


def _reduce_scatter_coalesced(a: Arguments, rank: int) -> TapCall:
    inputs, outputs = tuple(a["inputs"]), tuple(a["outputs"])
    call = TapCall(
        Kind.REDUCE_SCATTER, inputs[:1], outputs[:1], name="reduce_scatter_tensor_coalesced"
    )
    return _bundle(call, outputs)


def _alltoall(a: Arguments, rank: int) -> TapCall:
    return TapCall(Kind.ALL_TO_ALL, tuple(a["input_tensors"]), tuple(a["output_tensors"]))


def _alltoall_base(a: Arguments, rank: int) -> TapCall:
    return TapCall(
        Kind.ALL_TO_ALL,
        (a["input"],),
        (a["output"],),
        input_splits=list(a["input_split_sizes"]) or None,
        output_splits=list(a["output_split_sizes"]) or None,
        name="all_to_all_single",
    )


def _barrier(a: Arguments, rank: int) -> TapCall:
    return TapCall(Kind.BARRIER, (), ())


def _send(a: Arguments, rank: int) -> TapCall:
    return TapCall(Kind.SEND, tuple(a["tensors"]), (), peer=a["dst"], tag=a["tag"])


def _recv(a: Arguments, rank: int) -> TapCall:
    return TapCall(Kind.RECV, (), tuple(a["tensors"]), peer=a["src"], tag=a["tag"])


def _recv_any(a: Arguments, rank: int) -> TapCall:
    return TapCall(Kind.RECV, (), tuple(a["tensors"]), peer=-1, tag=a["tag"])


#: By the op's name in torch; what is not here passes unseen.
MAKERS: dict[str, Callable[[Arguments, int], TapCall]] = {
    "allreduce_": _allreduce,
    "allreduce_coalesced_": _allreduce_coalesced,
    "broadcast_": _broadcast,
    "reduce_": _reduce,
    "allgather_": _allgather,
    "_allgather_base_": _allgather_base,
    "allgather_coalesced_": _allgather_coalesced,
    "allgather_into_tensor_coalesced_": _allgather_into_coalesced,
    "gather_": _gather,
    "scatter_": _scatter,
    "reduce_scatter_": _reduce_scatter,
    "_reduce_scatter_base_": _reduce_scatter_base,
    "reduce_scatter_tensor_coalesced_": _reduce_scatter_coalesced,
    "alltoall_": _alltoall,
    "alltoall_base_": _alltoall_base,
    "barrier": _barrier,
    "send": _send,
    "recv_": _recv,
    "recv_any_source_": _recv_any,
}
