"""Ops whose arrays go through the host as a whole while a CUDA graph is captured: an error, nothing is sent.

CuPy is a stand-in. A tensor is torch's, and says of itself that it is on a GPU.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import UsageError
from distdbg.ops.call import Call, Kind
from distdbg.runtime.api.arguments import check_arrays
from distdbg.runtime.backends.staging import StagedCall
from tests.unit.gpu.moving import run
from tests.unit.nccl.stand_in import StandInArray

REFUSED = "captures a CUDA graph"


#: Not the one that a thread has by itself, whose stream captures nothing.
DEVICE = 1


class Capturing:
    """Which ranks have begun to capture, in the stream of one device."""

    def __init__(self) -> None:
        self.ranks: set[int] = set()
        self._here = threading.local()

    @contextmanager
    def use(self, device: int) -> Iterator[None]:
        self._here.device = device
        yield
        self._here.device = 0

    def is_capturing(self) -> bool:
        return dist.get_rank() in self.ranks and getattr(self._here, "device", 0) == DEVICE


class CupyArray(StandInArray):
    """What is used of cupy.ndarray."""


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> Capturing:
    capturing = Capturing()
    cupy: Any = ModuleType("cupy")
    cupy.ndarray = CupyArray
    stream = SimpleNamespace(is_capturing=capturing.is_capturing, synchronize=bool)
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: stream, Device=capturing.use)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return capturing


def batch(x: Any) -> None:
    other = 1 - dist.get_rank()
    ops = [dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, x, other)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


OPS: dict[str, Callable[[Any], object]] = {
    "all_reduce": dist.all_reduce,
    "async": lambda x: dist.all_reduce(x, async_op=True),
    "premul": lambda x: dist.all_reduce(x, dist.make_premul_sum(0.5)),
    "all_gather": lambda x: dist.all_gather([np.zeros(2, np.float32) for _ in range(2)], x),
    "send": lambda x: dist.send(x, 1 - dist.get_rank()),
    "irecv": lambda x: dist.irecv(x, 1 - dist.get_rank()),
    "batch": batch,
}


@pytest.mark.parametrize("op", OPS)
def test_an_op_in_a_capture_is_refused_and_the_group_goes_on(capturing: Capturing, op: str) -> None:
    def program() -> list[float]:
        x = CupyArray(np.ones(2, np.float32), DEVICE)
        if dist.get_rank() == 0:  # the other rank is told nothing of it
            capturing.ranks.add(0)
            with pytest.raises(UsageError, match=REFUSED):
                OPS[op](x)
            assert x.host.tolist() == [1, 1]
        # These have no array on a GPU.
        dist.barrier()
        host = np.ones(1, np.float32)
        dist.all_reduce(host)
        capturing.ranks.discard(0)
        dist.all_reduce(x)
        return [*x.host.tolist(), *host.tolist()]

    assert run(program) == [[2, 2, 2]] * 2


def test_engines_that_take_arrays_as_they_are_refuse_them_as_well(capturing: Capturing) -> None:
    """MPI's and UCC's."""

    def program() -> None:
        x = CupyArray(np.ones(2, np.float32), DEVICE)
        call = Call(Kind.ALL_REDUCE, (x,), (x,))
        check_arrays(call, also_on_gpu=True)
        capturing.ranks.add(0)
        with pytest.raises(UsageError, match=REFUSED):
            check_arrays(call, also_on_gpu=True)
        on_host = np.ones(2, np.float32)
        check_arrays(Call(Kind.ALL_REDUCE, (on_host,), (on_host,)), also_on_gpu=True)
        check_arrays(Call(Kind.BARRIER, (), ()), also_on_gpu=True)

    run(program, 1)


def test_a_tensor_is_refused_while_torchs_stream_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        is_cuda = True
        shape, nbytes, dtype = (2,), 8, "float32"

    is_capturing = True
    made: list[bool] = []

    def empty(shape: Any, dtype: Any, pin_memory: bool) -> Any:
        made.append(pin_memory)
        return np.empty(shape, np.float32)

    torch: Any = ModuleType("torch")
    torch.Tensor, torch.empty = Tensor, empty
    torch.cuda = SimpleNamespace(is_current_stream_capturing=lambda: is_capturing)
    monkeypatch.setitem(sys.modules, "torch", torch)
    call = Call(Kind.ALL_REDUCE, (), (Tensor(),))
    with pytest.raises(UsageError, match=f"all_reduce: the stream {REFUSED}"):
        StagedCall(call)
    with pytest.raises(UsageError, match=REFUSED):
        check_arrays(call, also_on_gpu=True)
    assert not made
    is_capturing = False
    StagedCall(call)
    assert made == [True]
