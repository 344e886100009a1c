"""The libraries behind one interface; imported inside a rank, each only where it is measured.

torch and distdbg share one class, because they share one API: torch gets tensors over the same
memory, distdbg the NumPy arrays themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.buffers import partner
from benchmarks.measure import Library


class TorchLike:
    """A module with torch.distributed's API."""

    def __init__(
        self,
        dist: Any,  # torch.distributed or distdbg
        rank: int,
        world_size: int,
        port: int,
        to_array: Callable[[Any], Any],
    ) -> None:
        self.dist = dist
        self.rank = rank
        self.world_size = world_size
        #: What makes the arrays.
        self.zeros: Callable[..., Any] = np.zeros
        self._to_array = to_array
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size
        )

    def bind(self, kind: str, source: Any, target: Any) -> Callable[[], object]:
        dist, x, y = self.dist, self._to_array(source), self._to_array(target)
        match kind:
            case "all_reduce":
                return partial(dist.all_reduce, x)
            case "broadcast":
                return partial(dist.broadcast, x, 0)
            case "all_gather":
                return partial(dist.all_gather_into_tensor, y, x)
            case "reduce_scatter":
                return partial(dist.reduce_scatter_tensor, y, x)
            case "all_to_all":
                return partial(dist.all_to_all_single, y, x)
            case "barrier":
                return partial(dist.barrier)
            case "copy":
                return partial(np.copyto, target, source)
            case "send_recv":
                send = partial(dist.send, x, partner(self.rank))
                recv = partial(dist.recv, y, partner(self.rank))
                return _ping_pong(send, recv, first=self.rank % 2 == 0)
            case _:
                raise ValueError(kind)

    def barrier(self) -> None:
        self.dist.barrier()

    def maxima(self, values: list[float]) -> list[float]:
        largest = np.array(values)
        self.dist.all_reduce(self._to_array(largest), op=self.dist.ReduceOp.MAX)
        return [float(value) for value in largest]

    def close(self) -> None:
        self.dist.barrier()
        self.dist.destroy_process_group()


class Mpi:
    """mpi4py over whichever MPI its environment names; typed buffers, so nothing is looked up."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi = MPI
        self.comm = MPI.COMM_WORLD
        self.rank: int = self.comm.Get_rank()
        self.world_size: int = self.comm.Get_size()

    def bind(self, kind: str, source: Any, target: Any) -> Callable[[], object]:
        mpi, comm = self.mpi, self.comm
        x: Any = [source, mpi.FLOAT]
        y: Any = [target, mpi.FLOAT]
        match kind:
            case "all_reduce":
                return partial(comm.Allreduce, mpi.IN_PLACE, x)
            case "broadcast":
                return partial(comm.Bcast, x, 0)
            case "all_gather":
                return partial(comm.Allgather, x, y)
            case "reduce_scatter":
                return partial(comm.Reduce_scatter_block, x, y)
            case "all_to_all":
                return partial(comm.Alltoall, x, y)
            case "barrier":
                return comm.Barrier
            case "copy":
                return partial(np.copyto, target, source)
            case "send_recv":
                send = partial(comm.Send, x, partner(self.rank))
                recv = partial(comm.Recv, y, partner(self.rank))
                return _ping_pong(send, recv, first=self.rank % 2 == 0)
            case _:
                raise ValueError(kind)

    def barrier(self) -> None:
        self.comm.Barrier()

    def maxima(self, values: list[float]) -> list[float]:
        largest = np.array(values)
        self.comm.Allreduce(self.mpi.IN_PLACE, largest, op=self.mpi.MAX)
        return [float(value) for value in largest]

    def close(self) -> None:
        self.comm.Barrier()
        self.mpi.Finalize()


def _ping_pong(
    send: Callable[[], object], recv: Callable[[], object], *, first: bool
) -> Callable[[], object]:
    def serve() -> None:
        send()
        recv()

    def answer() -> None:
        recv()
        send()

    return serve if first else answer


def open_library(name: str, rank: int, world_size: int, port: int) -> Library:
    """Import the library and join its ranks; rank, world_size and port are unused by MPI."""
    if name == "distdbg":
        import distdbg

        return TorchLike(distdbg, rank, world_size, port, lambda array: array)
    if name == "shared":
        import distdbg

        library = TorchLike(distdbg, rank, world_size, port, lambda array: array)
        library.zeros = distdbg.zeros
        return library
    if name == "gloo":
        import torch

        # The ops are small and the cores few: more threads than one per rank only get in the way.
        torch.set_num_threads(1)
        return TorchLike(torch.distributed, rank, world_size, port, torch.from_numpy)
    if name in ("openmpi", "mpich"):
        return Mpi()
    raise ValueError(name)
