"""Groups on GPUs: NCCL with a GPU for each rank, and our own engine with several ranks on one GPU.

Those go over IPC, in chunks through the host, or whole.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import distdbg as dist
from distdbg.errors import (
    DistBackendError,
    DistError,
    MismatchError,
    OpTimeout,
    PeerLost,
    UsageError,
)
from distdbg.testing.conformance.group import Api, run_checks

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

#: What NCCL does not have; see docs/explanation/gpu.md.
NOT_NCCLS = (
    "all_reduce_combines_bits",
    "messages_keep_their_tags_and_order",
    "rank_0_receives_from_whoever_sends",
)


def start(backend: str, gpus: int) -> Any:
    import cupy

    device = int(os.environ["RANK"]) % gpus
    cupy.cuda.Device(device).use()
    dist.init_process_group(backend, device_id=device, timeout=timedelta(seconds=60))
    return cupy


def conformance(backend: str, gpus: int, ipc: str = "on") -> dict[str, str]:
    os.environ["DISTDBG_GPU_IPC"] = ipc
    cupy = start(backend, gpus)
    api = Api(dist, array=cupy.array, values=lambda array: array.tolist())
    failures = run_checks(api, without=NOT_NCCLS if backend == "nccl" else ())
    dist.destroy_process_group()
    return failures


@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_on_one_gpu_pass_every_check_on_gloo(
    ranks: Callable[..., list[Any]], size: int
) -> None:
    assert ranks(conformance, size, timeout=120.0, backend="gloo", gpus=1) == [{}] * size


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_on_one_gpu_pass_every_check_over_ipc(
    ranks: Callable[..., list[Any]], size: int
) -> None:
    found = ranks(conformance, size, timeout=120.0, backend="gloo", gpus=1, ipc="always")
    assert found == [{}] * size


def large(ipc: str) -> list[int]:
    """Large arrays in every dtype, beside the same on the host; memory that is given back between two ops."""
    os.environ["DISTDBG_GPU_IPC"] = ipc
    cupy = start("gloo", 1)
    rank = dist.get_rank()
    wrong = []
    for number, dtype in enumerate(("float32", "float16", "int64", "complex64", "uint8", "bool")):
        x = (cupy.arange((10 << 20) + number) % 7 + rank).astype(dtype)[number:]
        host = x.get()
        dist.all_reduce(x)
        dist.all_reduce(host)
        wrong.append(int((x.get() != host).sum()))
        del x
        cupy.get_default_memory_pool().free_all_blocks()
    dist.destroy_process_group()
    return wrong


@pytest.mark.parametrize("ipc", ["on", "off"])
def test_large_arrays_come_out_as_on_the_host(ranks: Callable[..., list[Any]], ipc: str) -> None:
    assert ranks(large, 2, timeout=120.0, ipc=ipc) == [[0] * 6] * 2


def trade(ipc: str, transport: str = "auto") -> list[bool]:
    """all_to_all of large blocks that differ in size, and of nothing."""
    os.environ["DISTDBG_GPU_IPC"], os.environ["DISTDBG_TRANSPORT"] = ipc, transport
    cupy = start("gloo", 1)
    rank = dist.get_rank()
    rows = [[0, 3 << 20], [5 << 20, 7]]  # by the sender, to each rank
    takes = [row[rank] for row in rows]
    right = []
    for _ in range(2):
        mine = cupy.arange(sum(rows[rank]), dtype="int32") + rank
        got = cupy.zeros(sum(takes), "int32")
        dist.all_to_all_single(got, mine, takes, rows[rank])
        begins = [sum(row[:rank]) for row in rows]
        parts = [
            cupy.arange(begin, begin + count, dtype="int32") + source
            for source, (begin, count) in enumerate(zip(begins, takes, strict=True))
        ]
        right.append(bool((got.get() == cupy.concatenate(parts).get()).all()))
    dist.destroy_process_group()
    return right


@pytest.mark.parametrize(("ipc", "transport"), [("on", "auto"), ("off", "auto"), ("off", "tcp")])
def test_large_blocks_of_any_size_arrive(
    ranks: Callable[..., list[Any]], ipc: str, transport: str
) -> None:
    assert ranks(trade, 2, timeout=120.0, ipc=ipc, transport=transport) == [[True] * 2] * 2


def exchange(ipc: str, transport: str = "auto") -> list[bool]:
    """Messages of sizes that go through the host and that do not; either side on the host; in a stream."""
    os.environ["DISTDBG_GPU_IPC"], os.environ["DISTDBG_TRANSPORT"] = ipc, transport
    cupy = start("gloo", 1)
    rank = dist.get_rank()
    other, right = 1 - rank, []
    for count in (1 << 8, 1 << 22):
        mine, got = cupy.ones(count, "float32") + rank, cupy.zeros(count, "float32")
        ops = [dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, got, other)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        right.append(bool((got.get() == other + 1).all()))
        with cupy.cuda.Stream(non_blocking=True):
            for _ in range(3):  # in a stream of its own: the receiver waits for all of it
                mine += 1
            if rank == 0:
                dist.send(mine, 1)
            else:
                dist.recv(mine, 0)
                mine += 1  # and this after the message
                right.append(bool((mine.get() == 5).all()))
        host = got.get() if rank == 0 else got.get() * 0
        for to_device in (False, True):
            x = host if to_device == (rank == 0) else got
            if rank == 0:
                dist.send(x, 1)
            else:
                dist.recv(x, 0)
                found = x.get() if to_device else x
                right.append(bool((found == 2).all()))
    dist.destroy_process_group()
    return right


@pytest.mark.parametrize(
    ("ipc", "transport"), [("on", "auto"), ("off", "auto"), ("always", "auto"), ("off", "tcp")]
)
def test_messages_arrive_as_they_were_sent(
    ranks: Callable[..., list[Any]], ipc: str, transport: str
) -> None:
    found = ranks(exchange, 2, timeout=120.0, ipc=ipc, transport=transport)
    assert found == [[True] * 2, [True] * 8]


#: More than three pieces of 4 MiB: two of them are still to come when the first are there.
MANY_PIECES = 5 << 20


def message_differs_is_late_and_dies(ipc: str, transport: str) -> list[Any] | None:
    """A message of another size, one that nobody sends, and one whose sender dies."""
    os.environ["DISTDBG_GPU_IPC"], os.environ["DISTDBG_TRANSPORT"] = ipc, transport
    cupy = start("gloo", 1)
    rank = dist.get_rank()
    x = cupy.ones(MANY_PIECES, "float32")
    with pytest.raises(MismatchError):
        message(x[: MANY_PIECES - rank], rank)
    message(x + rank, rank)
    late = dist.new_group([0, 1])
    if rank == 1:
        with pytest.raises(OpTimeout) as reported:
            dist.recv(x, 0, late, timeout=timedelta(seconds=0.5))
        assert reported.value.missing == [0]
    else:
        with pytest.raises(DistError):  # the limit of the other is the end of the group
            dist.recv(cupy.ones(4), 1, late, tag=1)
    dist.barrier()
    if rank == 1:
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(PeerLost) as lost:
        dist.recv(x, 1)
    return [lost.value.peer]


def message(x: Any, rank: int) -> None:
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)


@pytest.mark.parametrize(("ipc", "transport"), [("on", "auto"), ("off", "auto"), ("off", "tcp")])
def test_a_message_that_differs_is_late_or_loses_its_sender_is_told(
    ranks: Callable[..., list[Any]], ipc: str, transport: str
) -> None:
    result = ranks(
        message_differs_is_late_and_dies, 2, timeout=120.0, expect_exit={1: -signal.SIGKILL},
        ipc=ipc, transport=transport,
    )  # fmt: skip
    assert result[0] == [1]


def op_is_late_on_one_gpu(ipc: str) -> list[int]:
    """Rank 1 does not come to an op."""
    os.environ["DISTDBG_GPU_IPC"] = ipc
    cupy = start("gloo", 1)
    x = cupy.ones(MANY_PIECES, "float32")
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        with pytest.raises(DistError):
            dist.recv(cupy.ones(4), 0)
        return []
    with pytest.raises(OpTimeout) as reported:
        dist.all_reduce(x, timeout=timedelta(seconds=0.5))
    return list(reported.value.missing)


@pytest.mark.parametrize("ipc", ["always", "off"])
def test_a_rank_that_does_not_come_is_told_on_one_gpu(
    ranks: Callable[..., list[Any]], ipc: str
) -> None:
    assert ranks(op_is_late_on_one_gpu, 2, timeout=120.0, ipc=ipc) == [[1], []]


def one_differs_and_one_dies_on_one_gpu() -> list[Any] | None:
    os.environ["DISTDBG_GPU_IPC"] = "always"
    cupy = start("gloo", 1)
    rank = dist.get_rank()
    with pytest.raises(MismatchError):
        dist.all_reduce(cupy.zeros(3 + rank))
    x = cupy.ones(4)
    dist.all_reduce(x)
    if rank == 1:
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(PeerLost) as lost:
        dist.all_reduce(x)
    return [lost.value.peer]


def test_a_mismatch_and_a_dead_peer_are_told_over_ipc(ranks: Callable[..., list[Any]]) -> None:
    result = ranks(
        one_differs_and_one_dies_on_one_gpu, 2, timeout=120.0, expect_exit={1: -signal.SIGKILL}
    )
    assert result[0] == [1]


def test_one_rank_passes_every_check_on_nccl(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(conformance, 1, timeout=120.0, backend="nccl", gpus=1) == [{}]


@pytest.mark.gpus(2)
def test_ranks_pass_every_check_on_nccl(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(conformance, 2, timeout=120.0, backend="nccl", gpus=2) == [{}] * 2


def streams() -> list[float]:
    cupy = start("cpu:gloo,cuda:nccl", 1)
    x = cupy.zeros(1 << 24, "float32")
    with cupy.cuda.Stream(non_blocking=True):
        x += 1  # in a stream of its own: the op comes after it
        work = dist.all_reduce(x, dist.make_premul_sum(3.0), async_op=True)
        work.wait()
        x += 1  # and this after the op
        found = [float(x.min()), float(x.max())]
    dist.destroy_process_group()
    return found


def test_an_op_is_ordered_with_the_streams_of_the_program(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(streams, 1, timeout=120.0) == [[4.0, 4.0]]


def every_dtype(backend: str, gpus: int) -> list[str]:
    """Each dtype with each reduction of NCCL's, beside the same on the host."""
    cupy = start(backend, gpus)
    rank, differ = dist.get_rank(), []
    for dtype in (
        "int8",
        "uint8",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
    ):
        for name in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
            if name == "AVG" and not dtype.startswith("float"):
                continue
            x = (cupy.arange(1001) % 3 + rank + 1).astype(dtype)
            host = x.get()
            op = getattr(dist.ReduceOp, name)
            dist.all_reduce(x, op)
            dist.all_reduce(host, op)
            if (x.get() != host).any():
                differ.append(f"{dtype} {name}")
    z = cupy.full(5, 1 + 2j * rank, "complex64")
    dist.all_reduce(z)
    wanted = sum(1 + 2j * each for each in range(dist.get_world_size()))
    if (z.get() != wanted).any():
        differ.append("complex64 SUM")
    dist.destroy_process_group()
    return differ


def test_one_rank_reduces_every_dtype_on_nccl(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(every_dtype, 1, timeout=120.0, backend="cpu:gloo,cuda:nccl", gpus=1) == [[]]


@pytest.mark.gpus(2)
def test_ranks_reduce_every_dtype_on_nccl_as_on_the_host(ranks: Callable[..., list[Any]]) -> None:
    found = ranks(every_dtype, 2, timeout=120.0, backend="cpu:gloo,cuda:nccl", gpus=2)
    assert found == [[], []]


def groups_of_groups(gpus: int) -> list[float]:
    """Groups of all and of oneself, by a split of the communicator, one with a stream that goes first."""
    cupy = start("nccl", gpus)
    rank, size = dist.get_rank(), dist.get_world_size()
    found = []
    fast = dist.new_group(pg_options=dist.NcclOptions(is_high_priority_stream=True))
    own = [dist.new_group([each]) for each in range(size)][rank]
    for group in (fast, own, dist.group.WORLD):
        x = cupy.full(1 << 16, rank + 1.0, "float32")
        dist.all_reduce(x, group=group)
        found.append(float(x.max()))
    dist.destroy_process_group()
    return found


def test_one_rank_makes_groups_of_a_group_on_nccl(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(groups_of_groups, 1, timeout=120.0, gpus=1) == [[1.0] * 3]


@pytest.mark.gpus(2)
def test_ranks_make_groups_of_a_group_on_nccl(ranks: Callable[..., list[Any]]) -> None:
    found = ranks(groups_of_groups, 2, timeout=120.0, gpus=2)
    assert found == [[3.0, rank + 1.0, 3.0] for rank in range(2)]


def capture_a_graph() -> str:
    """The first op has made the communicator; the op in the capture is refused, and the next one is right."""
    cupy = start("nccl", 1)
    x = cupy.ones(4, "float32")
    dist.all_reduce(x)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(UsageError) as refused:
            dist.all_reduce(x)
        stream.end_capture()
    dist.all_reduce(x)
    cupy.cuda.Device().synchronize()
    dist.destroy_process_group()
    return refused.value.what


def test_an_op_in_the_capture_of_a_graph_is_refused(ranks: Callable[..., list[Any]]) -> None:
    [what] = ranks(capture_a_graph, 1, timeout=120.0)
    assert "captures a CUDA graph" in what


def two_on_one() -> str:
    with pytest.raises(DistBackendError) as refused:
        start("nccl", 1)
    return refused.value.what


def test_two_ranks_on_one_gpu_are_refused_on_nccl(ranks: Callable[..., list[Any]]) -> None:
    for reported in ranks(two_on_one, 2, timeout=120.0):
        assert "ranks 0 and 1 are both on cuda:0" in reported


def op_is_late() -> list[str]:
    """Rank 1 does not come to an op in time."""
    cupy = start("nccl", 2)
    x = cupy.ones(1 << 20, "float32")
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        time.sleep(4)  # the other's limit is over by then
    with pytest.raises(DistError) as reported:
        dist.all_reduce(x, timeout=timedelta(seconds=2))
    return [type(reported.value).__name__]


@pytest.mark.gpus(2)
def test_a_rank_that_does_not_come_is_told_on_nccl(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(op_is_late, 2, timeout=120.0)[0] == ["OpTimeout"]


def one_differs_and_one_dies() -> list[Any] | None:
    cupy = start("nccl", 2)
    rank = dist.get_rank()
    with pytest.raises(MismatchError):
        dist.all_reduce(cupy.zeros(3 + rank))
    x = cupy.ones(4)
    dist.all_reduce(x)
    if rank == 1:
        cupy.cuda.Device().synchronize()
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(PeerLost) as lost:
        dist.barrier()
    return [x.tolist(), lost.value.peer]


@pytest.mark.gpus(2)
def test_a_mismatch_and_a_dead_peer_are_told_on_nccl(ranks: Callable[..., list[Any]]) -> None:
    result = ranks(one_differs_and_one_dies, 2, timeout=120.0, expect_exit={1: -signal.SIGKILL})
    assert result[0] == [[2.0] * 4, 1]
