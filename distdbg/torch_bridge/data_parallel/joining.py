"""What a rank without batches does in the passes of the others: all their ops, with zeros.

The protocol is torch's: the context calls `main_hook` once for each pass of the others, and `post_hook` when
all ranks are done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api.collectives import all_reduce
from distdbg.runtime.parallel.join import JoinHook

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.parallel.reducer.reducer import Reducer


class JoinedModule(Protocol):
    """The DistributedDataParallel whose rank has no batches left (module.py)."""

    reducer: Reducer
    divisor: float | None
    divides_by_initial_world_size: bool
    require_forward_param_sync: bool

    @property
    def process_group(self) -> ProcessGroup: ...

    def will_sync_module_buffers(self) -> bool:
        """Whether the next forward pass gives all ranks the buffers of one."""
        ...

    def sync_buffers(self, root: int) -> None:
        """Give all ranks the buffers of this one."""
        ...

    def sync_states(self, root: int) -> None:
        """Give all ranks the model of this one."""
        ...


class DataParallelJoinHook(JoinHook):
    """torch's JoinHook of one DistributedDataParallel."""

    def __init__(self, ddp: JoinedModule, divide_by_initial_world_size: bool) -> None:
        self._ddp = ddp
        ddp.divides_by_initial_world_size = divide_by_initial_world_size

    def main_hook(self) -> None:
        """Shadow one forward and one backward pass."""
        ddp = self._ddp
        if ddp.will_sync_module_buffers():
            ddp.sync_buffers(find_common_rank(ddp.process_group, is_candidate=False))
        does_sync = agree_on_sync(ddp.process_group, is_syncing=False)
        ddp.require_forward_param_sync = does_sync
        if does_sync:
            ddp.reducer.shadow(ddp.divisor)

    def post_hook(self, is_last_joiner: bool) -> None:
        """Give all ranks the model of one that was in the last pass."""
        root = find_common_rank(self._ddp.process_group, is_candidate=is_last_joiner)
        self._ddp.sync_states(root)


def find_common_rank(group: ProcessGroup, is_candidate: bool) -> int:
    """The largest group rank of the candidates; every rank calls it."""
    found = np.array([group.rank() if is_candidate else -1], np.int64)
    all_reduce(found, ReduceOp.MAX, group)
    return int(found[0])


def agree_on_sync(group: ProcessGroup, is_syncing: bool) -> bool:
    """Whether a rank that still has batches reduces in this pass."""
    found = np.array([int(is_syncing)], np.int64)
    all_reduce(found, ReduceOp.MAX, group)
    return bool(found[0])
