"""The parts of ops on GPU arrays that need no group: ways, what ranks say of their memory, chunks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.backends.gpu import chunks
from distdbg.runtime.backends.gpu.chunks import ChunkedOp, DeviceBlock, Pipeline
from distdbg.runtime.backends.gpu.ipc_info import (
    NO_MEMORY,
    IpcInfo,
    MemoryRef,
    info_nbytes,
    pack,
    sizes_match,
    unpack,
)
from distdbg.runtime.backends.gpu.routes import FROM_NBYTES, GpuRoute, choose

MIB = 1 << 20


def array(nbytes: int) -> Any:
    return SimpleNamespace(nbytes=nbytes)


def test_ranks_choose_by_what_they_have_alike() -> None:
    root = Call(Kind.SCATTER, [array(4 * MIB)] * 4, [array(4 * MIB)], root=0)
    other = Call(Kind.SCATTER, (), [array(4 * MIB)], root=0)
    for best in GpuRoute:
        assert choose(root, best, 4) is choose(other, best, 4) is best
    root = Call(Kind.GATHER, [array(1 << 10)], [array(1 << 10)] * 4, root=0)
    other = Call(Kind.GATHER, [array(1 << 10)], (), root=0)
    assert choose(root, GpuRoute.IPC, 4) is choose(other, GpuRoute.IPC, 4) is GpuRoute.WHOLE
    uneven = [array(MIB), array(200 * MIB)]
    for i in (0, 1):
        gather = Call(Kind.ALL_GATHER, [uneven[i]], uneven)
        scatter = Call(Kind.REDUCE_SCATTER, uneven, [uneven[i]])
        assert (
            choose(gather, GpuRoute.CHUNKS, 2)
            is choose(scatter, GpuRoute.CHUNKS, 2)
            is GpuRoute.CHUNKS
        )


@pytest.mark.parametrize("kind", FROM_NBYTES)
def test_small_arrays_go_whole(kind: Kind) -> None:
    few, many = 1 << 10, 64 * MIB
    for nbytes, ways in ((few, [GpuRoute.WHOLE] * 3), (many, list(GpuRoute))):
        call = Call(kind, [array(nbytes)], [array(nbytes)], root=0)
        assert [choose(call, best, 2) for best in GpuRoute] == ways


def test_messages_and_barriers_go_whole_and_exchanges_the_best_way() -> None:
    for kind in (Kind.SEND, Kind.RECV, Kind.BARRIER):
        assert choose(Call(kind, [array(MIB)], ()), GpuRoute.IPC, 2) is GpuRoute.WHOLE
    exchange = Call(Kind.ALL_TO_ALL, [array(1)], [array(64 * MIB)])
    assert [choose(exchange, best, 2) for best in GpuRoute] == list(GpuRoute)


def test_a_row_comes_over() -> None:
    info = IpcInfo(
        bytes(range(64)), "", [MemoryRef(3, 1 << 40, 5), NO_MEMORY, MemoryRef(4, 0, 7)], MemoryRef(3, 8, 9),
        [1, 2, 3], -2.5, [(5, bytes(64)), (6, b"x" * 64)], [1, 2],
    )  # fmt: skip
    data = pack(info, 3)
    assert len(data) == info_nbytes(3)
    assert unpack(data, 3) == info
    unable = IpcInfo(bytes(64), "not of cudaMalloc", [MemoryRef(-1, 0, 7)])
    assert unpack(pack(unable, 3), 3) == unable


def test_what_ranks_give_and_take_has_to_fit() -> None:
    give = IpcInfo(sources=[MemoryRef(0, 0, 4)], recv_nbytes=[4, 8])
    assert sizes_match([give, IpcInfo(sources=[MemoryRef(0, 0, 8)], recv_nbytes=[4, 8])])
    assert not sizes_match([give, IpcInfo(sources=[MemoryRef(0, 0, 4)], recv_nbytes=[4, 8])])
    assert sizes_match(
        [IpcInfo(sources=[MemoryRef(0, 0, 8)]), IpcInfo(recv_nbytes=[8, 0])]
    )  # a broadcast


class _Recording:
    """In the place of the driver: what is queued, and what the host waits for."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self.streams = iter(["down", "up"])
        #: Where each chunk begins on the device.
        self.base = 0

    def stream(self) -> Any:
        return SimpleNamespace(name=next(self.streams))

    def wait_for(self, stream: Any, event: int) -> None:
        self.reported.append(f"{stream.name} after the program")

    def event(self, stream: Any) -> Any:
        return self.reported[-1]

    def copy(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        number = (target if stream.name == "up" else source) // nbytes
        self.reported.append(f"{stream.name} {number}")

    def pinned(self, nbytes: int) -> Any:
        return np.zeros(nbytes, np.uint8)


def test_blocks_of_any_size_are_in_as_many_chunks_as_the_largest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", 3 << 10)
    sizes, begins = [5000, 0, 12, 9000], [0, 5000, 5000, 5012]
    blocks = [
        DeviceBlock(1000 + begin, nbytes) for begin, nbytes in zip(begins, sizes, strict=True)
    ]
    job = ChunkedOp(Kind.ALL_TO_ALL, Dtype.float32, blocks, blocks[:2], False, None, True, True)
    assert chunks.longest(job) == 9000
    found = list(chunks.pieces(job, 4, 20_000))  # somebody else has a larger one
    step = chunks.cut(20_000, 4, Kind.ALL_TO_ALL, 4)
    assert len(found) == -(-20_000 // step) > 4
    for at, begin, nbytes in zip(range(4), begins, sizes, strict=True):
        own = [inputs[at] for inputs, _ in found]
        assert sum(part.nbytes for part in own) == nbytes
        place = 1000 + begin
        for part in own:  # one after the other, and nothing twice
            assert part.address == place
            assert part.nbytes <= step
            place += part.nbytes
    assert all(len(outputs) == 2 for _, outputs in found)


def test_chunks_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", 64 << 10)
    nbytes = 64 << 10
    driver: Any = _Recording()
    job = ChunkedOp(
        Kind.ALL_REDUCE,
        Dtype.float32,
        [DeviceBlock(0, 4 * nbytes)],
        [DeviceBlock(0, 4 * nbytes)],
        True,
        None,
        True,
        True,
    )
    Pipeline(driver).run(
        job, 2, 4 * nbytes, SimpleNamespace(ptr=0),
        lambda inputs, outputs: driver.reported.append("op"),
        lambda event: driver.reported.append(f"until {event}"),
    )  # fmt: skip
    assert driver.reported == [
        "down after the program", "up after the program",
        "down 0",
        "down 1", "until down 0", "op", "up 0",
        "down 2", "until down 1", "op", "up 1",
        "until up 0",  # its place on the host is taken by the fourth
        "down 3", "until down 2", "op", "up 2",
        "until down 3", "op", "up 3",
        "until up 3", "until up 1", "until up 2",
    ]  # fmt: skip
