"""The ops as methods of a group, under torch's names and with its option objects.

Each method turns its arguments into Calls (`api/calls.py`), and starts them by `_start`. They serve our own
groups (group_methods.py), and torch's on our backend (torch_bridge/backend/collectives.py), whose option
objects and reduce ops are torch's. Where torch has two overloads, the second argument tells which is meant:
an option object or the bare values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from distdbg.errors import UsageError
from distdbg.ops.call import ANY_SOURCE, Call
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api import calls
from distdbg.runtime.api.arguments import Array
from distdbg.runtime.api.options import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    seconds_or_none,
)
from distdbg.runtime.handles.work import Work

Timeout = timedelta | None


class OpMethods:
    """What a group is that can start Calls; these methods always return a Work."""

    #: What an error calls the elements of a list, and the ops of one array in and one out.
    _array_word = "array"
    _gather_name = "all_gather_single"
    _scatter_name = "reduce_scatter_single"

    _rank: int
    _size: int

    @abstractmethod
    def _start(self, call: Call, opts: Any = None) -> Work: ...

    @abstractmethod
    def _start_all(self, all_calls: Sequence[Call], opts: Any = None) -> Work:
        """Start all calls in order; the one Work returned ends with the last."""

    @staticmethod
    def _to_reduce_op(theirs: Any) -> ReduceOp:
        ours: ReduceOp = theirs
        return ours

    def broadcast(
        self,
        tensors: Sequence[Array] | Array,
        opts: BroadcastOptions | int | None = None,
        timeout: Timeout = None,
        *,
        root: int | None = None,
    ) -> Work:
        """broadcast(tensors, opts) or broadcast(tensor, root, timeout=None)."""
        array, limit_s = self._only(tensors, "broadcast"), timeout_of(opts, timeout)
        return self._start(calls.broadcast(self._size, array, _root_of(opts, root), limit_s), opts)

    def allreduce(
        self,
        tensors: Sequence[Array] | Array,
        opts: AllreduceOptions | ReduceOp | None = None,
        timeout: Timeout = None,
        *,
        op: ReduceOp | None = None,
    ) -> Work:
        """allreduce(tensors, opts) or allreduce(tensor(s), op=SUM, timeout=None)."""
        array, limit_s = self._only(tensors, "allreduce"), timeout_of(opts, timeout)
        return self._start(calls.all_reduce(array, self._op_of(opts, op), limit_s), opts)

    def allreduce_coalesced(
        self, tensors: Sequence[Array], opts: AllreduceCoalescedOptions | None = None
    ) -> Work:
        """Reduce several arrays; one Work for all."""
        op, limit_s = self._op_of(opts), timeout_of(opts)
        return self._start_all([calls.all_reduce(array, op, limit_s) for array in tensors], opts)

    def reduce(
        self,
        tensors: Sequence[Array] | Array,
        opts: ReduceOptions | int | None = None,
        op: ReduceOp | None = None,
        timeout: Timeout = None,
        *,
        root: int | None = None,
    ) -> Work:
        """reduce(tensors, opts) or reduce(tensor, root, op=SUM, timeout=None)."""
        array, to = self._only(tensors, "reduce"), _root_of(opts, root)
        op = self._op_of(None if isinstance(opts, int) else opts, op)
        limit_s = timeout_of(opts, timeout)
        return self._start(calls.reduce(self._size, self._rank, array, to, op, limit_s), opts)

    def allgather(
        self,
        output_tensors: Sequence[Sequence[Array]] | Sequence[Array],
        input_tensors: Sequence[Array] | Array,
        opts: AllgatherOptions | None = None,
        timeout: Timeout = None,
    ) -> Work:
        """allgather([outputs], [input], opts) or allgather(outputs, input, timeout=None)."""
        outputs, array = self._unnest(output_tensors, input_tensors, "allgather")
        limit_s = timeout_of(opts, timeout)
        return self._start(calls.all_gather(self._size, self._rank, outputs, array, limit_s), opts)

    def allgather_coalesced(
        self,
        output_lists: Sequence[Sequence[Array]],
        input_list: Sequence[Array],
        opts: AllgatherOptions | None = None,
    ) -> Work:
        """Several allgathers; one Work for all. output_lists[r][i] gets input i of rank r."""
        name, limit_s = "allgather_coalesced", timeout_of(opts)
        all_calls = calls.all_gather_coalesced(
            self._size, self._rank, output_lists, input_list, limit_s, name
        )
        return self._start_all(all_calls, opts)

    def all_gather_single(
        self, output: Array, input: Array, opts: AllgatherOptions | None = None
    ) -> Work:
        """Gather into one array."""
        return self._start(self._gather_call(output, input, opts), opts)

    def all_gather_single_coalesced(
        self,
        outputs: Sequence[Array],
        inputs: Sequence[Array],
        opts: AllgatherOptions | None = None,
    ) -> Work:
        """Several all_gather_single; one Work for all."""
        pairs = _pairs(outputs, inputs, "all_gather_single_coalesced")
        return self._start_all([self._gather_call(o, i, opts) for o, i in pairs], opts)

    def _gather_call(self, output: Array, array: Array, opts: Any) -> Call:
        limit_s, name = timeout_of(opts), self._gather_name
        return calls.all_gather_single(self._size, self._rank, output, array, limit_s, name)

    def gather(
        self,
        output_tensors: Sequence[Sequence[Array]] | Sequence[Array],
        input_tensors: Sequence[Array] | Array,
        opts: GatherOptions | int | None = None,
        timeout: Timeout = None,
        *,
        root: int | None = None,
    ) -> Work:
        """gather([outputs], [input], opts) or gather(outputs, input, root, timeout=None)."""
        outputs, array = self._unnest(output_tensors, input_tensors, "gather")
        to, limit_s = _root_of(opts, root), timeout_of(opts, timeout)
        return self._start(calls.gather(self._size, self._rank, array, outputs, to, limit_s), opts)

    def scatter(
        self,
        output_tensors: Sequence[Array] | Array,
        input_tensors: Sequence[Sequence[Array]] | Sequence[Array],
        opts: ScatterOptions | int | None = None,
        timeout: Timeout = None,
        *,
        root: int | None = None,
    ) -> Work:
        """scatter([output], [inputs], opts) or scatter(output, inputs, root, timeout=None)."""
        inputs, array = self._unnest(input_tensors, output_tensors, "scatter")
        source, limit_s = _root_of(opts, root), timeout_of(opts, timeout)
        call = calls.scatter(self._size, self._rank, array, inputs, source, limit_s)
        return self._start(call, opts)

    def reduce_scatter(
        self,
        output_tensors: Sequence[Array] | Array,
        input_tensors: Sequence[Sequence[Array]] | Sequence[Array],
        opts: ReduceScatterOptions | ReduceOp | None = None,
        timeout: Timeout = None,
        *,
        op: ReduceOp | None = None,
    ) -> Work:
        """reduce_scatter([output], [inputs], opts) or (output, inputs, op=SUM, timeout=None)."""
        inputs, array = self._unnest(input_tensors, output_tensors, "reduce_scatter")
        op, limit_s = self._op_of(opts, op), timeout_of(opts, timeout)
        call = calls.reduce_scatter(self._size, self._rank, array, inputs, op, limit_s)
        return self._start(call, opts)

    def reduce_scatter_single(
        self, outputTensor: Array, inputTensor: Array, opts: ReduceScatterOptions | None = None
    ) -> Work:
        """Reduce one array and keep this rank's part."""
        return self._start(self._scatter_call(outputTensor, inputTensor, opts), opts)

    def reduce_scatter_single_coalesced(
        self,
        outputs: Sequence[Array],
        inputs: Sequence[Array],
        opts: ReduceScatterOptions | None = None,
    ) -> Work:
        """Several reduce_scatter_single; one Work for all."""
        pairs = _pairs(outputs, inputs, "reduce_scatter_single_coalesced")
        return self._start_all([self._scatter_call(o, i, opts) for o, i in pairs], opts)

    def _scatter_call(self, output: Array, array: Array, opts: Any) -> Call:
        op, limit_s, name = self._op_of(opts), timeout_of(opts), self._scatter_name
        return calls.reduce_scatter_single(self._size, output, array, op, limit_s, name)

    def alltoall(
        self,
        output_tensors: Sequence[Array],
        input_tensors: Sequence[Array],
        opts: AllToAllOptions | None = None,
        timeout: Timeout = None,
    ) -> Work:
        """Exchange lists of arrays."""
        size, rank, limit_s = self._size, self._rank, timeout_of(opts, timeout)
        call = calls.all_to_all(size, rank, output_tensors, input_tensors, limit_s)
        return self._start(call, opts)

    def all_to_all_single(
        self,
        output: Array,
        input: Array,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: AllToAllOptions | None = None,
        timeout: Timeout = None,
    ) -> Work:
        """Exchange parts of one array, cut evenly or by the splits."""
        size, rank, limit_s = self._size, self._rank, timeout_of(opts, timeout)
        call = calls.all_to_all_single(
            size, rank, output, input, output_split_sizes, input_split_sizes, limit_s
        )
        return self._start(call, opts)

    def barrier(
        self, opts: BarrierOptions | timedelta | None = None, timeout: Timeout = None
    ) -> Work:
        """barrier(opts) or barrier(timeout=None)."""
        return self._start(calls.barrier(timeout_of(opts, timeout)), opts)

    def send(self, tensors: Sequence[Array], dstRank: int, tag: int = 0) -> Work:
        """Send to group rank dstRank."""
        return self._start(calls.send(self._size, self._only(tensors, "send"), dstRank, tag))

    def recv(self, tensors: Sequence[Array], srcRank: int, tag: int = 0) -> Work:
        """Receive from group rank srcRank."""
        return self._start(calls.recv(self._size, self._only(tensors, "recv"), srcRank, tag))

    def recv_anysource(self, arg0: Sequence[Array], arg1: int = 0) -> Work:
        """Receive from whoever sends with this tag; the Work knows from whom."""
        return self.recv(arg0, ANY_SOURCE, arg1)

    # Their older names, which C++ and Python of torch's older releases call.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _op_of(self, opts: Any, op: Any = None) -> ReduceOp:
        """The reduce op: given as `op`, in the options, or instead of them; SUM without any."""
        if op is not None:
            return self._to_reduce_op(op)
        if opts is None:
            return ReduceOp.SUM
        try:
            return self._to_reduce_op(opts.reduceOp)
        except AttributeError:
            return self._to_reduce_op(opts)

    def _only(self, tensors: Sequence[Array] | Array, what: str) -> Array:
        """Return the array of a list of one; a rank has one device here."""
        if not isinstance(tensors, (list, tuple)):
            return tensors
        if len(tensors) != 1:
            raise UsageError(
                f"{what}: expected a list of one {self._array_word}, got {len(tensors)}"
            )
        return tensors[0]

    def _unnest(self, lists: Any, single: Any, what: str) -> tuple[Sequence[Array], Array]:
        """Take ([[a, b]], [x]) and (([a, b], x)) to ([a, b], x)."""
        if not isinstance(single, (list, tuple)):
            return lists, single
        array = self._only(single, what)
        return ([], array) if len(lists) == 0 else (self._only(lists, what), array)


def timeout_of(opts: Any, timeout: Timeout = None) -> float | None:
    """The limit of an op in seconds, by its arguments; None: the group's."""
    if timeout is None:
        timeout = opts if isinstance(opts, timedelta) else getattr(opts, "timeout", None)
    return seconds_or_none(timeout)


def _root_of(opts: Any, root: int | None) -> int:
    """The group rank of the root: given as `root`, in the options, or instead of them; 0 without any."""
    if root is not None:
        return root
    if opts is None:
        return 0
    return int(opts) if isinstance(opts, int) else int(opts.rootRank)


def _pairs(outputs: Sequence[Any], inputs: Sequence[Any], what: str) -> list[tuple[Any, Any]]:
    if len(outputs) != len(inputs):
        raise UsageError(f"{what}: {len(outputs)} outputs and {len(inputs)} inputs were given")
    return list(zip(outputs, inputs, strict=True))
