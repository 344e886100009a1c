"""The ops as methods of a group, under torch's names and with its option objects.

Each method turns its arguments into Calls (`api/calls.py`) and starts them with `run`. Where torch has
two overloads, the second argument tells which is meant: an option object or the bare values.
Like torch's, these methods always return a Work.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, overload

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
from distdbg.runtime.groups.group_state import GroupState
from distdbg.runtime.handles.work import Work

Timeout = timedelta | None


class GroupMethods(GroupState):
    """What ProcessGroup is without a way to carry out a Call: its `run` is that."""

    @overload
    def run(self, call: Call, async_op: Literal[False] = False) -> int: ...
    @overload
    def run(self, call: Call, async_op: Literal[True]) -> Work: ...
    @overload
    def run(self, call: Call, async_op: bool) -> Work | int: ...

    @abstractmethod
    def run(self, call: Call, async_op: bool = False) -> Work | int:
        """Give one op to the engine. Blocking: the group rank a recv came from, else -1."""

    @abstractmethod
    def _start_all(self, all_calls: Sequence[Call]) -> Work:
        """Start all calls in order; the one Work returned ends with the last."""

    def _start(self, call: Call) -> Work:
        return self.run(call, True)

    def broadcast(
        self,
        tensors: Sequence[Array] | Array,
        opts: BroadcastOptions | int | None = None,
        timeout: Timeout = None,
        *,
        root: int | None = None,
    ) -> Work:
        """broadcast(tensors, opts) or broadcast(tensor, root, timeout=None)."""
        if isinstance(opts, int):
            root, opts = opts, None
        if root is not None:
            array, at = tensors, seconds_or_none(timeout)
        else:
            options = opts or BroadcastOptions()
            array, root, at = _only(tensors, "broadcast"), options.rootRank, options.timeout_s
        return self._start(calls.broadcast(self.size(), array, root, at))

    def allreduce(
        self,
        tensors: Sequence[Array] | Array,
        opts: AllreduceOptions | ReduceOp | None = None,
        timeout: Timeout = None,
        *,
        op: ReduceOp | None = None,
    ) -> Work:
        """allreduce(tensors, opts) or allreduce(tensor(s), op=SUM, timeout=None)."""
        if isinstance(opts, AllreduceOptions):
            return self._start(
                calls.all_reduce(_only(tensors, "allreduce"), opts.reduceOp, opts.timeout_s)
            )
        array = _only(tensors, "allreduce") if isinstance(tensors, (list, tuple)) else tensors
        return self._start(
            calls.all_reduce(array, op or opts or ReduceOp.SUM, seconds_or_none(timeout))
        )

    def allreduce_coalesced(
        self, tensors: Sequence[Array], opts: AllreduceCoalescedOptions | None = None
    ) -> Work:
        """Reduce several arrays; one Work for all."""
        options = opts or AllreduceCoalescedOptions()
        return self._start_all(
            [calls.all_reduce(array, options.reduceOp, options.timeout_s) for array in tensors]
        )

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
        if isinstance(opts, int):
            root, opts = opts, None
        if root is not None:
            array, at, op = tensors, seconds_or_none(timeout), op or ReduceOp.SUM
        else:
            options = opts or ReduceOptions()
            array, root, at = _only(tensors, "reduce"), options.rootRank, options.timeout_s
            op = options.reduceOp
        return self._start(calls.reduce(self.size(), self.rank(), array, root, op, at))

    def allgather(
        self,
        output_tensors: Sequence[Sequence[Array]] | Sequence[Array],
        input_tensors: Sequence[Array] | Array,
        opts: AllgatherOptions | None = None,
        timeout: Timeout = None,
    ) -> Work:
        """allgather([outputs], [input], opts) or allgather(outputs, input, timeout=None)."""
        outputs, array = _unnest(output_tensors, input_tensors, "allgather")
        at = opts.timeout_s if opts is not None else seconds_or_none(timeout)
        return self._start(calls.all_gather(self.size(), self.rank(), outputs, array, at))

    def allgather_coalesced(
        self,
        output_lists: Sequence[Sequence[Array]],
        input_list: Sequence[Array],
        opts: AllgatherOptions | None = None,
    ) -> Work:
        """Several allgathers; one Work for all. output_lists[r][i] gets input i of rank r."""
        at = (opts or AllgatherOptions()).timeout_s
        return self._start_all(
            calls.all_gather_coalesced(
                self.size(), self.rank(), output_lists, input_list, at, "allgather_coalesced"
            )
        )

    def all_gather_single(
        self, output: Array, input: Array, opts: AllgatherOptions | None = None
    ) -> Work:
        """Gather into one array."""
        at = (opts or AllgatherOptions()).timeout_s
        return self._start(
            calls.all_gather_single(
                self.size(), self.rank(), output, input, at, "all_gather_single"
            )
        )

    def all_gather_single_coalesced(
        self,
        outputs: Sequence[Array],
        inputs: Sequence[Array],
        opts: AllgatherOptions | None = None,
    ) -> Work:
        """Several all_gather_single; one Work for all."""
        _check_pairs(outputs, inputs, "all_gather_single_coalesced")
        at = (opts or AllgatherOptions()).timeout_s
        size, rank = self.size(), self.rank()
        return self._start_all(
            [
                calls.all_gather_single(size, rank, output, array, at, "all_gather_single")
                for output, array in zip(outputs, inputs, strict=True)
            ]
        )

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
        if isinstance(opts, int):
            root, opts = opts, None
        outputs, array = _unnest(output_tensors, input_tensors, "gather")
        at = seconds_or_none(timeout) if root is not None else (opts or GatherOptions()).timeout_s
        root = (opts or GatherOptions()).rootRank if root is None else root
        return self._start(calls.gather(self.size(), self.rank(), array, outputs, root, at))

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
        if isinstance(opts, int):
            root, opts = opts, None
        inputs, array = _unnest(input_tensors, output_tensors, "scatter")
        at = seconds_or_none(timeout) if root is not None else (opts or ScatterOptions()).timeout_s
        root = (opts or ScatterOptions()).rootRank if root is None else root
        return self._start(calls.scatter(self.size(), self.rank(), array, inputs, root, at))

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
        inputs, array = _unnest(input_tensors, output_tensors, "reduce_scatter")
        if isinstance(opts, ReduceScatterOptions):
            op, at = opts.reduceOp, opts.timeout_s
        else:
            op, at = op or opts or ReduceOp.SUM, seconds_or_none(timeout)
        return self._start(calls.reduce_scatter(self.size(), self.rank(), array, inputs, op, at))

    def reduce_scatter_single(
        self, outputTensor: Array, inputTensor: Array, opts: ReduceScatterOptions | None = None
    ) -> Work:
        """Reduce one array and keep this rank's part."""
        options = opts or ReduceScatterOptions()
        return self._start(
            calls.reduce_scatter_single(
                self.size(),
                outputTensor,
                inputTensor,
                options.reduceOp,
                options.timeout_s,
                "reduce_scatter_single",
            )
        )

    def reduce_scatter_single_coalesced(
        self,
        outputs: Sequence[Array],
        inputs: Sequence[Array],
        opts: ReduceScatterOptions | None = None,
    ) -> Work:
        """Several reduce_scatter_single; one Work for all."""
        _check_pairs(outputs, inputs, "reduce_scatter_single_coalesced")
        options = opts or ReduceScatterOptions()
        return self._start_all(
            [
                calls.reduce_scatter_single(
                    self.size(),
                    output,
                    array,
                    options.reduceOp,
                    options.timeout_s,
                    "reduce_scatter_single",
                )
                for output, array in zip(outputs, inputs, strict=True)
            ]
        )

    def alltoall(
        self,
        output_tensors: Sequence[Array],
        input_tensors: Sequence[Array],
        opts: AllToAllOptions | None = None,
    ) -> Work:
        """Exchange lists of arrays."""
        at = (opts or AllToAllOptions()).timeout_s
        return self._start(
            calls.all_to_all(self.size(), self.rank(), output_tensors, input_tensors, at)
        )

    def all_to_all_single(
        self,
        output: Array,
        input: Array,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: AllToAllOptions | None = None,
        timeout: Timeout = None,
    ) -> Work:
        """Exchange parts of one array."""
        at = opts.timeout_s if opts is not None else seconds_or_none(timeout)
        return self._start(
            calls.all_to_all_single(
                self.size(), self.rank(), output, input, output_split_sizes, input_split_sizes, at
            )
        )

    def barrier(
        self, opts: BarrierOptions | timedelta | None = None, timeout: Timeout = None
    ) -> Work:
        """barrier(opts) or barrier(timeout=None)."""
        if isinstance(opts, BarrierOptions):
            return self._start(calls.barrier(opts.timeout_s))
        return self._start(calls.barrier(seconds_or_none(opts if opts is not None else timeout)))

    def monitored_barrier(self, timeout: Timeout = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks; an error names those that did not come."""
        from distdbg.runtime.members.store_barrier import (
            run_monitored_barrier,
        )  # for a faster start

        run_monitored_barrier(self, seconds_or_none(timeout))

    def send(self, tensors: Sequence[Array], dstRank: int, tag: int) -> Work:
        """Send to group rank dstRank."""
        return self._start(calls.send(self.size(), _only(tensors, "send"), dstRank, tag))

    def recv(self, tensors: Sequence[Array], srcRank: int, tag: int) -> Work:
        """Receive from group rank srcRank."""
        return self._start(calls.recv(self.size(), _only(tensors, "recv"), srcRank, tag))

    def recv_anysource(self, arg0: Sequence[Array], arg1: int) -> Work:
        """Receive from whoever sends with this tag; the Work knows from whom."""
        return self._start(calls.recv(self.size(), _only(arg0, "recv"), ANY_SOURCE, arg1))

    # Their older names.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def _only(tensors: Sequence[Array] | Array, what: str) -> Array:
    """Return the array of a list of one; a rank has one device here."""
    if not isinstance(tensors, (list, tuple)):
        return tensors
    if len(tensors) != 1:
        raise UsageError(f"{what}: expected a list of one array, got {len(tensors)}")
    return tensors[0]


def _unnest(
    lists: Sequence[Sequence[Array]] | Sequence[Array], single: Sequence[Array] | Array, what: str
) -> tuple[Sequence[Array], Array]:
    """Take ([[a, b]], [x]) and (([a, b], x)) to ([a, b], x)."""
    if not isinstance(single, (list, tuple)):
        return lists, single
    array = _only(single, what)
    if len(lists) == 0:
        return [], array
    return _only(lists, what), array


def _check_pairs(outputs: Sequence[object], inputs: Sequence[object], what: str) -> None:
    if len(outputs) != len(inputs):
        raise UsageError(f"{what}: {len(outputs)} outputs and {len(inputs)} inputs were given")
