"""Collectives: torch's names for the ops of all ranks, on the Calls of the runtime.

The methods are those of our own groups (runtime/groups/op_methods.py), which have the names and
arguments of torch 2.13 and of the releases before it. An op with `asyncOp` unset, as the blocking functions
of torch.distributed ask for it, is carried out in the calling thread; all others are started, and give a
Work. A method never returns None: torch's C++ takes that for a Work, and the process dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_dist

from distdbg.errors import UsageError, WrongTypeError
from distdbg.ops.call import Call, Kind, Variant
from distdbg.ops.reduce_op import RedOpType, ReduceOp, make_premul_sum
from distdbg.runtime.api import calls
from distdbg.runtime.api.arguments import check_one_dtype
from distdbg.runtime.api.monitored_barrier import monitored_barrier
from distdbg.runtime.groups.coalesced import start_all
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.op_methods import OpMethods, timeout_of
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
_GLOO_ORDER = int(Variant.GLOO_ORDER)
_GLOO_RING = int(Variant.GLOO_RING)


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


class Collectives(OpMethods, _Base):
    """The part of DistdbgProcessGroup that all ranks call together."""

    #: The group of our runtime; everything that it can do is done there.
    group: ProcessGroup
    _name: str
    #: Whether reductions are to have gloo's order; of two ranks there is one order only.
    _adds_as_gloo: bool
    _done: DoneWork
    _array_word = "tensor"
    _gather_name = "all_gather_into_tensor"
    _scatter_name = "reduce_scatter_tensor"
    _to_reduce_op = staticmethod(_reduce_op)

    def _start(self, call: Call, opts: Options = None) -> Any:
        # PREMUL_SUM has scaled its input already: no backend of torch's for CPUs has that.
        if self._adds_as_gloo and call.op is not None and not call.extra:
            call.extra = _GLOO_ORDER
        if _is_async(opts):
            return DistdbgWork(self.group.run(call, True))
        self.group.run(call)
        return self._done

    def _start_all(self, all_calls: Sequence[Call], opts: Options = None) -> Any:
        if self._adds_as_gloo:
            for call in all_calls:
                if call.op is not None and not call.extra:
                    call.extra = _GLOO_ORDER
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
    ) -> Any:
        """allreduce(tensors, opts) or allreduce(tensor(s), op=SUM, timeout=None)."""
        tensor = self._only(tensors, "allreduce")
        our_op, limit_s = self._op_of(opts, op), timeout_of(opts, timeout)
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

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Options = None) -> Any:
        """Reduce several tensors; one Work for all."""
        check_one_dtype("allreduce_coalesced", tensors)
        op, limit_s = self._op_of(opts), timeout_of(opts)
        all_calls = [calls.all_reduce(tensor, op, limit_s) for tensor in tensors]
        if self._adds_as_gloo and len(all_calls) > 1:
            _share_ring(all_calls, tensors)
        return self._start_all(all_calls, opts)

    def monitored_barrier(
        self, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Wait for all ranks; OpTimeout on every rank names those that did not come."""
        monitored_barrier(self.group, timeout, wait_all_ranks)


def _share_ring(all_calls: Sequence[Call], tensors: Sequence[Tensor]) -> None:
    """Say where in their ring the tensors lie: gloo puts them one after the other."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    total, begin = sum(sizes), 0
    for call, nbytes in zip(all_calls, sizes, strict=True):
        if not call.extra:
            call.extra = _GLOO_RING
            call.ring = (begin, total)
        begin += nbytes


def _is_async(opts: Any) -> bool:
    """Whether the caller waits by itself; releases before 2.7 do not say."""
    return getattr(opts, "asyncOp", True)


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
