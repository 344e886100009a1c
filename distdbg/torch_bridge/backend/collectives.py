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

from distdbg.errors import UsageError, WrongTypeError
from distdbg.ops.call import Call, Kind
from distdbg.ops.reduce_op import RedOpType, ReduceOp, make_premul_sum
from distdbg.runtime.api import calls
from distdbg.runtime.api.arguments import check_one_dtype
from distdbg.runtime.api.monitored_barrier import monitored_barrier
from distdbg.runtime.api.options import seconds_or_none
from distdbg.runtime.groups.coalesced import start_all
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.torch_bridge.backend.tensors import only, pairs, unnest
from distdbg.torch_bridge.backend.work import DistdbgWork, DoneWork
from distdbg.torch_bridge.training.ddp import armed, bucket_of
from distdbg.torch_bridge.training.naming import named

_BY_NUMBER: dict[int, ReduceOp] = {int(kind): getattr(ReduceOp, kind.name) for kind in RedOpType}
_PREMUL_SUM = RedOpType.PREMUL_SUM


Tensor = Any
Options = Any
Work = DistdbgWork | DoneWork

_Base: Any = torch_dist.ProcessGroup
_ALL_REDUCE = Kind.ALL_REDUCE
_SUM = ReduceOp.SUM
_STRIDED = torch.strided


class Collectives(_Base):
    """The part of DistdbgProcessGroup that all ranks call together."""

    #: The group of our runtime; everything that it can do is done there.
    group: ProcessGroup
    _name: str
    _group_rank: int
    _group_size: int
    _done: DoneWork

    def _start(self, call: Call, opts: Options = None) -> Work:
        if _is_async(opts):
            return DistdbgWork(self.group.run(call, True))
        self.group.run(call)
        return self._done

    def _start_all(self, all_calls: Sequence[Call], opts: Options = None) -> Work:
        work = start_all(self.group, all_calls)
        if _is_async(opts):
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
        our_op, limit_s = _op_of(opts, op), _timeout_of(opts, timeout)
        if tensor.layout is not _STRIDED:
            _all_reduce_sparse(self.group, tensor, our_op, limit_s)
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
        our_op, limit_s = _op_of(opts), _timeout_of(opts)
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
            _root_of(opts, root),
            _timeout_of(opts, timeout),
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
            _root_of(opts, root),
            _op_of(opts, op),
            _timeout_of(opts, timeout),
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
        limit_s = _timeout_of(opts, timeout)
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
                _timeout_of(opts),
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
            _timeout_of(opts),
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
        to = _root_of(opts, root)
        blocks = outputs if outputs or self._group_rank == to else None
        limit_s = _timeout_of(opts, timeout)
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
        source = _root_of(opts, root)
        blocks = inputs if inputs or self._group_rank == source else None
        limit_s = _timeout_of(opts, timeout)
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
            _op_of(opts, op),
            _timeout_of(opts, timeout),
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
            _op_of(opts),
            _timeout_of(opts),
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
            _timeout_of(opts, timeout),
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
            _timeout_of(opts, timeout),
        )
        return self._start(call, opts)

    def barrier(self, opts: Options = None, timeout: timedelta | None = None) -> Work:
        """barrier(opts) or barrier(timeout=None)."""
        return self._start(calls.barrier(_timeout_of(opts, timeout)), opts)

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


def _is_async(opts: Any) -> bool:
    """Whether the caller waits by itself; releases before 2.7 do not say."""
    return getattr(opts, "asyncOp", True)


def _op_of(opts: Any, op: Any = None) -> ReduceOp:
    """The reduce op: given as `op`, in the options, or instead of them; SUM without any."""
    if op is not None:
        return _reduce_op(op)
    if opts is None or isinstance(opts, int):
        return ReduceOp.SUM
    try:
        return _reduce_op(opts.reduceOp)
    except AttributeError:
        return _reduce_op(opts)


def _root_of(opts: Any, root: int | None = None) -> int:
    """The group rank of the root: given as `root`, in the options, or instead of them; 0 without any."""
    if root is not None:
        return root
    if opts is None:
        return 0
    return int(opts) if isinstance(opts, int) else int(opts.rootRank)


def _timeout_of(opts: Any, timeout: timedelta | None = None) -> float | None:
    """The limit of this op in seconds; None: the group's."""
    if timeout is None:
        timeout = opts if isinstance(opts, timedelta) else getattr(opts, "timeout", None)
    return seconds_or_none(timeout)


def _all_reduce_sparse(
    group: ProcessGroup, tensor: Any, op: ReduceOp, timeout_s: float | None
) -> None:
    """Add up one sparse tensor over all ranks, in place; blocks until it is done."""
    if tensor.layout is not torch.sparse_coo:
        raise UsageError(
            f"all_reduce: tensor has layout {tensor.layout}; only dense and sparse COO tensors can "
            "be used",
            hint="pass tensor.to_sparse_coo() or tensor.to_dense()",
        )
    if op.op is not RedOpType.SUM:
        raise UsageError(f"all_reduce: sparse tensors have SUM only, not {op.op.name}")
    mine = tensor.detach().coalesce()
    shape = [mine.sparse_dim(), mine.dense_dim(), *mine.shape]
    facts = torch.tensor([mine._nnz(), *shape], dtype=torch.int64)
    everyone = torch.empty(group.size() * facts.numel(), dtype=torch.int64)
    group.run(
        calls.all_gather_single(
            group.size(), group.rank(), everyone, facts, timeout_s, "all_reduce of a sparse tensor"
        )
    )
    table = everyone.view(group.size(), -1).tolist()
    differ = [rank for rank, row in enumerate(table) if row[1:] != shape]
    if differ:
        raise UsageError(
            f"all_reduce: the sparse tensors differ in shape: rank {group.ranks[group.rank()]} has "
            f"{tuple(mine.shape)}, rank {group.ranks[differ[0]]} has {tuple(table[differ[0]][3:])}"
        )
    counts = [row[0] for row in table]
    indices = [torch.empty((mine.sparse_dim(), n), dtype=torch.int64) for n in counts]
    values = [mine.values().new_empty((n, *mine.values().shape[1:])) for n in counts]
    for blocks, own in ((indices, mine.indices()), (values, mine.values())):
        group.run(
            calls.all_gather(
                group.size(),
                group.rank(),
                blocks,
                own.contiguous(),
                timeout_s,
                "all_reduce of a sparse tensor",
            )
        )
    total = torch.sparse_coo_tensor(
        torch.cat(indices, dim=1), torch.cat(values), size=tuple(mine.shape)
    ).coalesce()
    with torch.no_grad():
        tensor.copy_(total)


def _reduce_op(theirs: Any) -> ReduceOp:
    """The same op; `theirs` is a torch ReduceOp or a member of its RedOpType."""
    # Its number, and the cheapest way to it: `.op` takes three times as long.
    number = hash(theirs)
    if number == _PREMUL_SUM:
        return make_premul_sum(_factor(theirs))
    try:
        return _BY_NUMBER[number]
    except KeyError:
        raise WrongTypeError(f"{theirs!r:.80} is no reduce op of the backend distdbg") from None


def _factor(theirs: Any) -> Any:
    """The factor of a PREMUL_SUM, which torch shows to pickle alone."""
    state = theirs.__getstate__()
    return state[1]
