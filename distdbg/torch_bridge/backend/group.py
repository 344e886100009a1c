"""DistdbgProcessGroup: a group of torch's whose ops are Calls on one of ours.

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

from distdbg.check.monitored_barrier import monitored_barrier
from distdbg.errors import UsageError
from distdbg.runtime import calls
from distdbg.runtime.arguments import check_one_dtype
from distdbg.runtime.call import ANY_SOURCE, Call, Kind
from distdbg.runtime.coalescing import Collector, start_all
from distdbg.runtime.group import ProcessGroup
from distdbg.runtime.init import leave_group
from distdbg.runtime.options import seconds_or_none
from distdbg.runtime.reduce_op import ReduceOp
from distdbg.torch_bridge.backend.options import is_async, op_of, root_of, timeout_of
from distdbg.torch_bridge.backend.sparse import all_reduce_sparse
from distdbg.torch_bridge.backend.work import DistdbgWork, DoneWork

Tensor = Any
Options = Any
Work = DistdbgWork | DoneWork

_Base: Any = torch_dist.ProcessGroup
_PrefixStore: Any = getattr(torch_dist, "PrefixStore")  # noqa: B009 - not exported to type checkers
_ALL_REDUCE = Kind.ALL_REDUCE
_SUM = ReduceOp.SUM
_STRIDED = torch.strided


class DistdbgProcessGroup(_Base):  # type: ignore[misc]  # torch's classes are Any here
    """A group on the backend "distdbg"."""

    def __init__(self, group: ProcessGroup, store: Any) -> None:
        # With a store as the first argument torch makes an object that is not this one.
        super().__init__(group.rank(), group.size())
        #: Of our runtime; everything that it can do is done there.
        self.group = group
        self._store = store
        self._group_rank = group.rank()
        self._group_size = group.size()
        self._name = group.group_name
        self._desc = group.group_desc
        self._done = DoneWork()
        #: torch keeps a plain ProcessGroup of what a method returns, unless somebody keeps the object.
        self._parts: list[DistdbgProcessGroup] = []

    # -------------------------------------------------------------------------- who it is

    def getBackendName(self) -> str:
        """Return the name of the backend."""
        return "distdbg"

    def name(self) -> str:
        """Return the name of the backend."""
        return "distdbg"

    def rank(self) -> int:
        """Return this rank's number in the group."""
        return self._group_rank

    def size(self) -> int:
        """Return how many ranks the group has."""
        return self._group_size

    def getRank(self) -> int:
        """Return this rank's number in the group, to C++."""
        return self._group_rank

    def getSize(self) -> int:
        """Return how many ranks the group has, to C++."""
        return self._group_size

    def setGroupName(self, name: str) -> None:
        """Take the name by which C++ finds the group."""
        self._name = name

    def getGroupName(self) -> str:
        """Return the name by which C++ finds the group."""
        return self._name

    def setGroupDesc(self, desc: str) -> None:
        """Take what messages call the group."""
        self._desc = desc
        if desc:
            self.group.group_desc = desc

    def getGroupDesc(self) -> str:
        """Return what messages call the group."""
        return self._desc

    def get_group_store(self) -> Any:
        """Return torch's store of this group."""
        return self._store

    # ------------------------------------------------------------------------- collectives

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
        tensor = _only(tensors, "allreduce")
        our_op, limit_s = op_of(opts, op), timeout_of(opts, timeout)
        if tensor.layout is not _STRIDED:
            all_reduce_sparse(self.group, tensor, our_op, limit_s)
            return DoneWork([tensor])
        if our_op is _SUM:
            both = (tensor,)
            call = Call(_ALL_REDUCE, both, both, _SUM, timeout_s=limit_s)
        else:
            call = calls.all_reduce(tensor, our_op, limit_s)
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
            _only(tensors, "broadcast"),
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
            _only(tensors, "reduce"),
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
        outputs, tensor = _unnest(output_tensors, input_tensors, "allgather")
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
        pairs = _pairs(outputs, inputs, "all_gather_single_coalesced")
        return self._start_all([self._gather_call(o, i, opts) for o, i in pairs], opts)

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
        outputs, tensor = _unnest(output_tensors, input_tensors, "gather")
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
        inputs, tensor = _unnest(input_tensors, output_tensors, "scatter")
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
        inputs, tensor = _unnest(input_tensors, output_tensors, "reduce_scatter")
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
        pairs = _pairs(outputs, inputs, "reduce_scatter_single_coalesced")
        return self._start_all([self._scatter_call(o, i, opts) for o, i in pairs], opts)

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

    # ---------------------------------------------------------------------- point to point

    def send(self, tensors: Sequence[Tensor], dstRank: int, tag: int = 0) -> Work:
        """Send to group rank dstRank."""
        call = calls.send(self._group_size, _only(tensors, "send"), dstRank, tag)
        return DistdbgWork(self.group.run(call, True))

    def recv(self, tensors: Sequence[Tensor], srcRank: int, tag: int = 0) -> Work:
        """Receive from group rank srcRank."""
        call = calls.recv(self._group_size, _only(tensors, "recv"), srcRank, tag)
        return DistdbgWork(self.group.run(call, True))

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        """Receive from whoever sends with this tag; the Work knows from whom."""
        return self.recv(tensors, ANY_SOURCE, tag)

    recvAnysource = recv_anysource

    # -------------------------------------------------------------------------- coalescing

    def _start_coalescing(self, device: Any = None) -> None:
        # It never raises: torch would then put every later op of the group aside, and say nothing.
        if self.group.collector is None:
            self.group.collector = Collector()

    def _end_coalescing(self, device: Any = None) -> Work:
        collector, self.group.collector = self.group.collector, None
        if collector is None:
            raise UsageError("_end_coalescing was called without _start_coalescing")
        return DistdbgWork(start_all(self.group, collector.calls))

    startCoalescing = _start_coalescing
    endCoalescing = _end_coalescing

    # ------------------------------------------------------------------- the group itself

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: ours counts from its first op, on all ranks alike."""

    def _get_sequence_number_for_group(self) -> int:
        return self.group.issued()

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the limit of ops that bring none of their own."""
        self.group.set_timeout(timeout)

    _set_default_timeout = set_timeout

    def _verify_work_timeout(self, work: Any, timeout: timedelta) -> bool:
        return seconds_or_none(timeout) == self.group.timeout_s

    def abort(self) -> None:
        """Break the group: ops in flight end with an error on every rank."""
        self.group.abort()

    def shutdown(self) -> None:
        """Leave the group; with the default group, leave all and free what they hold."""
        leave_group(self.group)

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Options = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[object] | None = None,
    ) -> DistdbgProcessGroup | None:
        """Make a group of some group ranks of this one; exactly these ranks get it."""
        if self._group_rank not in ranks:
            return None
        made = self.group.split_group(ranks, timeout, None, group_name, group_desc)
        return self._keep(made, made.group_name)

    splitGroup = split_group

    def merge_remote_group(
        self,
        store: Any,
        size: int,
        timeout: timedelta | None = None,
        group_name: str | None = None,
        group_desc: str | None = None,
    ) -> DistdbgProcessGroup:
        """Make one group of this one and others that call it with the same store and size."""
        from distdbg.torch_bridge.store import TorchStore

        made = self.group.merge_remote_group(
            TorchStore(store), size, timeout, group_name, group_desc
        )
        return self._keep(made, made.group_name)

    mergeRemoteGroup = merge_remote_group

    def _keep(self, group: ProcessGroup, name: str) -> DistdbgProcessGroup:
        part = DistdbgProcessGroup(group, _PrefixStore(f"{name}/", self._store))
        self._parts.append(part)
        return part

    def __repr__(self) -> str:
        return repr(self.group)


def _only(tensors: Sequence[Tensor] | Tensor, what: str) -> Tensor:
    """Return the tensor of a list of one; a rank has one device here."""
    if not isinstance(tensors, (list, tuple)):
        return tensors
    if len(tensors) != 1:
        raise UsageError(f"{what}: expected a list of one tensor, got {len(tensors)}")
    return tensors[0]


def _unnest(lists: Sequence[Any], single: Any, what: str) -> tuple[Sequence[Tensor], Tensor]:
    """Take ([[a, b]], [x]) and (([a, b], x)) to ([a, b], x)."""
    if not isinstance(single, (list, tuple)):
        return lists, single
    tensor = _only(single, what)
    if len(lists) == 0:
        return [], tensor
    return _only(lists, what), tensor


def _pairs(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], what: str
) -> list[tuple[Tensor, Tensor]]:
    if len(outputs) != len(inputs):
        raise UsageError(f"{what}: {len(outputs)} outputs and {len(inputs)} inputs were given")
    return list(zip(outputs, inputs, strict=True))
