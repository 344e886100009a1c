"""torch's own ProcessGroupGloo as a backend of somebody else: only the option objects are translated.

It is what a user would write to use a torch backend here; nothing in it knows of checks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_dist

import distdbg as dist

_made = 0


def tensors_of(arrays: Sequence[Any]) -> list[Any]:
    """Objects travel in NumPy arrays; the tensors are views of them."""
    return [x if torch.is_tensor(x) else torch.from_numpy(x) for x in arrays]


class TorchGloo:
    """One group's ProcessGroupGloo. `TORCH_GLOO_STORE` names a file that the ranks share."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        # One file for each group: torch's store must not be one of ours.
        if rank == 0:
            global _made
            _made += 1
            store.set("file", f"{os.environ['TORCH_GLOO_STORE']}-{os.getpid()}-{_made}")
        theirs = torch_dist.FileStore(store.get("file").decode(), size)
        self.gloo = torch_dist.ProcessGroupGloo(theirs, rank, size, timeout)

    def allreduce(self, tensors: Sequence[Any], opts: Any) -> Any:
        options = torch_dist.AllreduceOptions()
        options.reduceOp = getattr(torch_dist.ReduceOp, opts.reduceOp.op.name)
        return self.gloo.allreduce(tensors_of(tensors), options)

    def broadcast(self, tensors: Sequence[Any], opts: Any) -> Any:
        options = torch_dist.BroadcastOptions()
        options.rootRank = opts.rootRank
        options.rootTensor = 0
        return self.gloo.broadcast(tensors_of(tensors), options)

    def reduce(self, tensors: Sequence[Any], opts: Any) -> Any:
        options = torch_dist.ReduceOptions()
        options.reduceOp = getattr(torch_dist.ReduceOp, opts.reduceOp.op.name)
        options.rootRank = opts.rootRank
        return self.gloo.reduce(tensors_of(tensors), options)

    def allgather(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        return self.gloo.allgather([tensors_of(outputs[0])], tensors_of(inputs))

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        options = torch_dist.GatherOptions()
        options.rootRank = opts.rootRank
        return self.gloo.gather([tensors_of(each) for each in outputs], tensors_of(inputs), options)

    def alltoall_base(self, output: Any, input: Any, out: Any, into: Any, opts: Any) -> Any:
        return self.gloo.alltoall_base(*tensors_of([output, input]), out, into)

    def barrier(self, opts: Any) -> Any:
        return self.gloo.barrier()

    def send(self, tensors: Sequence[Any], dst: int, tag: int) -> Any:
        return self.gloo.send(tensors_of(tensors), dst, tag)

    def recv(self, tensors: Sequence[Any], src: int, tag: int) -> Any:
        return self.gloo.recv(tensors_of(tensors), src, tag)

    def recv_anysource(self, tensors: Sequence[Any], tag: int) -> Any:
        return self.gloo.recv_anysource(tensors_of(tensors), tag)

    def abort(self) -> None:
        self.gloo.abort()

    def shutdown(self) -> None:
        # Also let go of it: one that is left to the end of the interpreter takes the process down.
        self.gloo.shutdown()
        del self.gloo


def init(timeout_s: float = 120.0) -> int:
    """Make the default group on it; returns the rank."""
    torch.set_num_threads(1)
    dist.Backend.register_backend("torch_gloo", TorchGloo, devices="cpu")
    dist.init_process_group("torch_gloo", timeout=timedelta(seconds=timeout_s))
    return dist.get_rank()
