"""Collectives: torch's names for the ops of all ranks, on the Calls of the runtime.

Every method has torch's name and arguments, of torch 2.13 and of the releases before it. An op with
`asyncOp` unset, as the blocking functions of torch.distributed ask for it, is carried out in the calling
thread; all others are started, and give a Work. A method never returns None: torch's C++ takes that for a
Work, and the process dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_dist

from distdbg.ops.call import Call, Kind
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api import calls
from distdbg.runtime.api.arguments import check_one_dtype
from distdbg.runtime.api.monitored_barrier import monitored_barrier
from distdbg.runtime.groups.coalesced import start_all
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.torch_bridge.backend.options import is_async, op_of, root_of, timeout_of
from distdbg.torch_bridge.backend.sparse import all_reduce_sparse
from distdbg.torch_bridge.backend.tensors import only, pairs, unnest
from distdbg.torch_bridge.backend.work import DistdbgWork, DoneWork
from distdbg.torch_bridge.training.ddp import armed, bucket_of
from distdbg.torch_bridge.training.naming import named

Tensor = Any
Options = Any
Work = DistdbgWork | DoneWork

_Base: Any = torch_dist.ProcessGroup
_ALL_REDUCE = Kind.ALL_REDUCE
_SUM = ReduceOp.SUM
_STRIDED = torch.strided


class Collectives(_Base):
    """The part of DistdbgProcessGroup that all ranks call together."""

    #: Of our runtime; everything that it can do is done there.
    group: ProcessGroup
    _name: str
    _group_rank: int
    _group_size: int
    _done: DoneWork

    def _start(self, call: Call, opts: Options = None) -> Work:
        if is_async(opts):
            return DistdbgWork(self.group.run(call, True))
        self.group.run(call)
        return self._done

    def _start_all(self, all_calls: Sequence[Call], opts: Options = None) -> Work:
        work = start_all(self.group, all_calls)
        if is_async(opts):
            return DistdbgWork(work)
        work.wait()
        return self._done

    def allreduce(
        self,
        tensors: Sequence[Tensor] | Tensor,
        opts: Options = None,
        timeout: timedelta | None = None,
        *,
        op: Any = None,
    ) -> Work:
        """allreduce(tensors, opts) or allreduce(tensor(s), op=SUM, timeout=None)."""
        tensor = only(tensors, "allreduce")
        our_op, limit_s = op_of(opts, op), timeout_of(opts, timeout)
        if tensor.layout is not _STRIDED:
            all_reduce_sparse(self.group, tensor, our_op, limit_s)
            return DoneWork([tensor])
        if our_op is _SUM:
            both = (tensor,)
            call = Call(_ALL_REDUCE, both, both, _SUM, timeout_s=limit_s)
        else:
            call = calls.all_reduce(tensor, our_op, limit_s)
        bucket = bucket_of(self._name, tensor.numel()) if armed else ""
        if bucket:
            with named(bucket):
                return self._start(call, opts)
        return self._start(call, opts)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Options = None) -> Work:
        """Reduce several tensors; one Work for all."""
        our_op, limit_s = op_of(opts), timeout_of(opts)
        check_one_dtype("allreduce_coalesced", tensors)
        return self._start_all([calls.all_reduce(t, our_op, limit_s) for t in tensors], opts)

    def broadcast(
        self,
        tensors: Sequence[Tensor] | Tensor,
        opts: Options = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Work:
        """broadcast(tensors, opts) or broadcast(tensor, root, timeout=None)."""
        call = calls.broadcast(
            self._group_size,
            only(tensors, "broadcast"),
            root_of(opts, root),
            timeout_of(opts, timeout),
        )
        return self._start(call, opts)

    def reduce(
        self,
        tensors: Sequence[Tensor] | Tensor,
        opts: Options = None,
        op: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Work:
        """reduce(tensors, opts) or reduce(tensor, root, op=SUM, timeout=None)."""
        call = calls.reduce(
            self._group_size,
            self._group_rank,
            only(tensors, "reduce"),
            root_of(opts, root),
            op_of(opts, op),
            timeout_of(opts, timeout),
        )
        return self._start(call, opts)

    def allgather(
        self,
        output_tensors: Sequence[Any],
        input_tensors: Sequence[Tensor] | Tensor,
        opts: Options = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """allgather([outputs], [input], opts) or allgather(outputs, input, timeout=None)."""
        outputs, tensor = unnest(output_tensors, input_tensors, "allgather")
        limit_s = timeout_of(opts, timeout)
        call = calls.all_gather(self._group_size, self._group_rank, outputs, tensor, limit_s)
        return self._start(call, opts)

    def allgather_coalesced(
        self,
        output_lists: Sequence[Sequence[Tensor]],
        input_list: Sequence[Tensor],
        opts: Options = None,
    ) -> Work:
        """Several allgathers; one Work for all. output_lists[r][i] gets input i of rank r."""
        return self._start_all(
            calls.all_gather_coalesced(
                self._group_size,
                self._group_rank,
                output_lists,
                input_list,
                timeout_of(opts),
                "allgather_coalesced",
            ),
            opts,
        )

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Options = None) -> Work:
        """Gather into one tensor."""
        return self._start(self._gather_call(output, input, opts), opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Options = None
    ) -> Work:
        """Several all_gather_single; one Work for all."""
        pairs_ = pairs(outputs, inputs, "all_gather_single_coalesced")
        return self._start_all([self._gather_call(o, i, opts) for o, i in pairs_], opts)

    def _gather_call(self, output: Tensor, tensor: Tensor, opts: Options) -> Call:
        return calls.all_gather_single(
            self._group_size,
            self._group_rank,
            output,
            tensor,
            timeout_of(opts),
            "all_gather_into_tensor",
        )

    def gather(
        self,
        output_tensors: Sequence[Any],
        input_tensors: Sequence[Tensor] | Tensor,
        opts: Options = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Work:
        """gather([outputs], [input], opts) or gather(outputs, input, root, timeout=None)."""
        outputs, tensor = unnest(output_tensors, input_tensors, "gather")
        to = root_of(opts, root)
        blocks = outputs if outputs or self._group_rank == to else None
        limit_s = timeout_of(opts, timeout)
        call = calls.gather(self._group_size, self._group_rank, tensor, blocks, to, limit_s)
        return self._start(call, opts)

    def scatter(
        self,
        output_tensors: Sequence[Tensor] | Tensor,
        input_tensors: Sequence[Any],
        opts: Options = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Work:
        """scatter([output], [inputs], opts) or scatter(output, inputs, root, timeout=None)."""
        inputs, tensor = unnest(input_tensors, output_tensors, "scatter")
        source = root_of(opts, root)
        blocks = inputs if inputs or self._group_rank == source else None
        limit_s = timeout_of(opts, timeout)
        call = calls.scatter(self._group_size, self._group_rank, tensor, blocks, source, limit_s)
        return self._start(call, opts)

    def reduce_scatter(
        self,
        output_tensors: Sequence[Tensor] | Tensor,
        input_tensors: Sequence[Any],
        opts: Options = None,
        timeout: timedelta | None = None,
        *,
        op: Any = None,
    ) -> Work:
        """reduce_scatter([output], [inputs], opts) or (output, inputs, op=SUM, timeout=None)."""
        inputs, tensor = unnest(input_tensors, output_tensors, "reduce_scatter")
        call = calls.reduce_scatter(
            self._group_size,
            self._group_rank,
            tensor,
            inputs,
            op_of(opts, op),
            timeout_of(opts, timeout),
        )
        return self._start(call, opts)

    def reduce_scatter_single(
        self, outputTensor: Tensor, inputTensor: Tensor, opts: Options = None
    ) -> Work:
        """Reduce one tensor and keep this rank's part."""
        return self._start(self._scatter_call(outputTensor, inputTensor, opts), opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Options = None
    ) -> Work:
        """Several reduce_scatter_single; one Work for all."""
        pairs_ = pairs(outputs, inputs, "reduce_scatter_single_coalesced")
        return self._start_all([self._scatter_call(o, i, opts) for o, i in pairs_], opts)

    def _scatter_call(self, output: Tensor, tensor: Tensor, opts: Options) -> Call:
        return calls.reduce_scatter_single(
            self._group_size,
            output,
            tensor,
            op_of(opts),
            timeout_of(opts),
            "reduce_scatter_tensor",
        )

    def alltoall(
        self,
        output_tensors: Sequence[Tensor],
        input_tensors: Sequence[Tensor],
        opts: Options = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Exchange lists of tensors."""
        call = calls.all_to_all(
            self._group_size,
            self._group_rank,
            output_tensors,
            input_tensors,
            timeout_of(opts, timeout),
        )
        return self._start(call, opts)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Options = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Exchange parts of one tensor, cut evenly or by the splits."""
        call = calls.all_to_all_single(
            self._group_size,
            self._group_rank,
            output,
            input,
            output_split_sizes,
            input_split_sizes,
            timeout_of(opts, timeout),
        )
        return self._start(call, opts)

    def barrier(self, opts: Options = None, timeout: timedelta | None = None) -> Work:
        """barrier(opts) or barrier(timeout=None)."""
        return self._start(calls.barrier(timeout_of(opts, timeout)), opts)

    def monitored_barrier(
        self, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Wait for all ranks; OpTimeout on every rank names those that did not come."""
        monitored_barrier(self.group, timeout, wait_all_ranks)

    # The names of torch's older releases; C++ and Python of those call them.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
