"""all_to_all of arrays on a GPU through pinned memory in chunks. The GPU is a stand-in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import DistError, MismatchError
from distdbg.runtime.backends.gpu import chunks
from tests.unit.gpu.moving import copies
from tests.unit.gpu.stand_in import Machine, SlowDevice

SIZE = 3
#: By the sender, rows to each rank: some have nothing, and one is much the largest.
ROWS = [[0, 7, 40_000], [1, 3, 0], [20_000, 500, 2]]
TRANSPORTS = pytest.mark.parametrize("transport", ["", "tcp"], ids=["shared memory", "tcp"])


@pytest.fixture(autouse=True)
def _small_chunks(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", 96 << 10)
    monkeypatch.setattr(chunks, "_LEAST_NBYTES", 32 << 10)
    monkeypatch.setenv("DISTDBG_GPU_IPC", "off")


def run(monkeypatch: pytest.MonkeyPatch, transport: str, program: Any, size: int = SIZE) -> Any:
    if transport:  # each rank is a host by itself
        monkeypatch.setenv("DISTDBG_TRANSPORT", transport)
    return dist.run_threads(program, size, timeout_s=60)


def block(source: int, target: int) -> Any:
    return np.arange(ROWS[source][target], dtype=np.float32) + 1000 * source + 100 * target


def wanted(rank: int) -> Any:
    return np.concatenate([block(source, rank) for source in range(SIZE)])


@TRANSPORTS
@pytest.mark.parametrize("is_async", [False, True])
def test_blocks_of_any_size_arrive(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, transport: str, is_async: bool
) -> None:
    def program() -> list[bool]:
        rank = dist.get_rank()
        found = machine.array(np.zeros(len(wanted(rank))))
        source = machine.array(np.concatenate([block(rank, to) for to in range(SIZE)]))
        takes = [ROWS[each][rank] for each in range(SIZE)]
        work = dist.all_to_all_single(found, source, takes, ROWS[rank], async_op=is_async)
        if work is not None:
            work.wait()
        outputs = [machine.array(np.zeros(count)) for count in takes]
        dist.all_to_all(outputs, [machine.array(block(rank, to)) for to in range(SIZE)])
        lists = np.concatenate([x.host for x in outputs])
        return [bool((x == wanted(rank)).all()) for x in (found.host, lists)]

    assert run(monkeypatch, transport, program) == [[True, True]] * SIZE
    # Never more of the host than three chunks each way.
    assert all(nbytes <= chunks.CHUNK_NBYTES for _, nbytes, _ in machine.pinned)
    assert len(machine.pinned) > SIZE


@TRANSPORTS
def test_a_chunk_is_copied_while_another_is_exchanged(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    """The device does nothing before it has the next copy as well: who waited for the first would hang."""
    # Five chunks of two blocks each, down and up.
    machine.slow = {rank: SlowDevice(2, 20) for rank in (0, 1)}
    count = 5 * (48 << 10) // 4

    def program() -> bool:
        rank = dist.get_rank()
        mine = np.arange(2 * count, dtype=np.float32) + rank
        found = machine.array(np.zeros(2 * count))
        dist.all_to_all_single(found, machine.array(mine))
        others = [np.arange(2 * count, dtype=np.float32) + each for each in (0, 1)]
        right = np.concatenate([x[rank * count : (rank + 1) * count] for x in others])
        return bool((found.host == right).all())

    assert run(monkeypatch, transport, program, 2) == [True, True]
    assert copies(machine, 0) == [48 << 10] * 20


@TRANSPORTS
def test_a_difference_is_told_before_anything_is_copied(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    def program() -> list[float]:
        rank = dist.get_rank()
        x = machine.array(np.zeros(60_000))
        with pytest.raises(MismatchError) as differs:
            dist.all_to_all_single(x, x, [20_000, 40_000], [20_000, 40_000])
        assert "rank 1 sends 20000 elements to rank 0, which expects 40000" in str(
            differs.value
        ) or "rank 0 sends 40000 elements to rank 1, which expects 20000" in str(differs.value)
        assert copies(machine, rank) == []
        y = machine.array([float(rank)] * 2)
        found = machine.array([0.0] * 2)
        dist.all_to_all_single(found, y)
        return found.host.tolist()

    assert run(monkeypatch, transport, program, 2) == [[0.0, 1.0]] * 2


@TRANSPORTS
@pytest.mark.parametrize("how", ["fails", "leaves"])
def test_a_rank_that_ends_in_the_middle_is_told_to_the_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, transport: str, how: str
) -> None:
    def program() -> str:
        rank = dist.get_rank()
        x, y = machine.array(np.zeros(200_000)), machine.array(np.zeros(200_000))

        def on_copy(nbytes: int) -> None:
            if dist.get_rank() == 1 and len(copies(machine, 1)) == 5:
                if how == "fails":
                    machine.fails.add(1)
                else:
                    raise KeyboardInterrupt

        if rank == 1:
            machine.on_copy = on_copy
        dist.barrier()
        with pytest.raises((DistError, KeyboardInterrupt)) as ended:
            dist.all_to_all_single(x, y)
        return "" if rank == 1 and how == "leaves" else str(ended.value)

    reported = run(monkeypatch, transport, program, 2)
    assert "rank 1" in reported[0]
    assert how == "leaves" or "failed on the GPU: CudaError: 700" in reported[1]
