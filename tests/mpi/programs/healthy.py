"""What ranks of mpiexec can do: `python healthy.py FOLDER`. Each writes what it found there."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import exactness
import numpy as np

import distdbg as dist
from distdbg.errors import DistError
from distdbg.runtime.backends.mpi import starting
from distdbg.testing.conformance.group import Api, run_checks
from tests.unit.nccl.stand_in import StandInArray


def caught(function: Any) -> list[str]:
    try:
        function()
    except DistError as error:
        return [type(error).__name__, error.what]
    return ["nothing", ""]


def go_on_without_a_wait(rank: int) -> list[float]:
    """The message of rank 0 goes while it waits for a key, not for MPI."""
    big = np.full(1 << 18, 1.0 + rank)
    assert dist.group.WORLD is not None
    store = dist.group.WORLD.get_group_store()
    if rank == 0:
        work = dist.isend(big, 1)
        store.wait(["it has come"], timedelta(seconds=20))
        work.wait()
    elif rank == 1:
        dist.recv(big, 0)
        store.set("it has come", "")
    return [float(big[0]), float(big[-1])]


def wrong_calls(rank: int) -> dict[str, Callable[[], object]]:
    """What ranks can have different; rank 1 is the odd one."""
    is_odd = rank == 1
    x = np.ones(4)
    blocks = [np.zeros(4) for _ in range(3)]
    root = 1 if is_odd else 0
    splits = [1, 1, 2] if is_odd else [1, 1, 1]
    narrow = np.ones(3, np.int32 if is_odd else np.float32)
    several = [np.ones(2), np.ones(3 if is_odd else 4)]

    def wait_later() -> None:
        work = dist.all_reduce(np.ones(3 if is_odd else 4), async_op=True)
        assert work is not None
        work.wait()

    def in_order() -> None:
        steps = [lambda: dist.all_reduce(x), lambda: dist.broadcast(x, 0)]
        for step in reversed(steps) if is_odd else steps:
            step()

    return {
        "shape": lambda: dist.all_reduce(np.ones(3 if is_odd else 4)),
        "later": wait_later,
        "ndim": lambda: dist.all_reduce(np.ones((2, 2)) if is_odd else x),
        "dtype": lambda: dist.all_reduce(narrow),
        "kind": lambda: dist.broadcast(x, 0) if is_odd else dist.all_reduce(x),
        "barrier": lambda: dist.barrier() if is_odd else dist.all_reduce(x),
        "op": lambda: dist.all_reduce(x, dist.ReduceOp.MAX if is_odd else dist.ReduceOp.SUM),
        "root": lambda: dist.broadcast(x, root),
        "reduce dst": lambda: dist.reduce(x, root),
        "gather dst": lambda: dist.gather(x, blocks if rank == root else None, root),
        "splits": lambda: dist.all_to_all_single(
            np.ones(3), np.ones(sum(splits)), [1, 1, 1], splits
        ),
        "exchanged dtype": lambda: dist.all_to_all_single(np.ones_like(narrow), narrow),
        "order": in_order,
        "coalesced": lambda: dist.all_reduce_coalesced(several),
    }


def find_mismatches(rank: int) -> dict[str, list[str]]:
    """At DETAIL the group goes on after each."""
    found = {}
    for name, call in wrong_calls(rank).items():
        found[name] = caught(call)
        y = np.ones(1)
        dist.all_reduce(y)
        assert y[0] == dist.get_world_size()
    return found


def message_mismatch(rank: int) -> list[str]:
    if rank > 1:
        return ["nothing", ""]
    pair = dist.new_group([0, 1], use_local_synchronization=True)
    if rank == 0:
        found = caught(lambda: (dist.send(np.ones(4), 1, group=pair), dist.barrier(pair)))
    else:
        found = caught(lambda: dist.recv(np.zeros(3), 0, group=pair))
    dist.destroy_process_group(pair)
    return found


def to_itself(rank: int) -> list[Any]:
    """Alone it can never complete; with its other side begun before it, it does."""
    x, y = np.full(2, 3.0), np.zeros(2)
    found = [caught(lambda: dist.send(x, rank)), caught(lambda: dist.recv(y, rank))]
    work = dist.irecv(y, rank)
    assert work is not None
    dist.send(x, rank)
    work.wait()
    work = dist.isend(2 * x, rank, tag=4)
    assert work is not None
    dist.recv(y, rank, tag=4)
    work.wait()
    anybodys = dist.irecv(y, tag=5)
    assert anybodys is not None
    dist.send(3 * x, rank, tag=5)
    anybodys.wait()
    return [*found, y.tolist()]


def overflow() -> list[int]:
    """Of many elements: a library may add those by other instructions."""
    x = np.full(67, 200, np.uint8)
    dist.all_reduce(x)
    return sorted(set(x.tolist()))


def on_gpus(rank: int) -> list[Any]:
    """Arrays that say they are on a GPU: through the host, and then as if MPI read them there."""
    mpi = starting.started()
    assert mpi is not None
    found: list[Any] = [mpi.reads_gpus]
    for mpi.reads_gpus in (False, True):
        x, parts = StandInArray(np.full(2, rank + 1.0)), StandInArray(np.zeros(6))
        dist.all_reduce(x)
        work = dist.all_gather_into_tensor(parts, x, async_op=True)
        assert work is not None
        work.wait()
        mean = StandInArray(np.array([rank, rank + 3]))
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        moved = StandInArray(np.zeros(2))
        works = [dist.isend(x, (rank + 1) % 3), dist.irecv(moved, (rank - 1) % 3)]
        for work in works:
            assert work is not None
            work.wait()
        blocks = [StandInArray(np.zeros(1)) for _ in range(3)]
        dist.all_gather(blocks, StandInArray(np.array([rank + 7.0])))
        found.append([x.host.tolist() for x in (x, parts, mean, moved, *blocks)])
    return found


def main(folder: str) -> None:
    dist.init_process_group("mpi", timeout=timedelta(seconds=40))
    rank, size = dist.get_rank(), dist.get_world_size()
    found: dict[str, Any] = {"rank": rank, "size": size, "backend": dist.get_backend()}
    found["failures"] = run_checks(Api(dist, np.array, np.ndarray.tolist))
    found["compared"] = exactness.compare_all()
    found["goes on"] = go_on_without_a_wait(rank)
    part = dist.split_group(split_ranks=[[0, 1], list(range(2, size))])
    assert part is not None
    x = np.ones(1)
    dist.all_reduce(x, group=part)
    found["to itself"] = to_itself(rank)
    found["overflow"] = overflow()
    found["on gpus"] = on_gpus(rank)
    found["split"] = [dist.get_backend(part), x[0]]
    found["mismatches"] = find_mismatches(rank)
    found["tag"] = caught(lambda: dist.send(x, (rank + 1) % size, tag=2**40))
    found["message"] = message_mismatch(rank)
    dist.monitored_barrier()
    if rank == 1:
        time.sleep(1.0)  # it is late
        found["late"] = []
    else:
        found["late"] = caught(lambda: dist.monitored_barrier(timeout=timedelta(seconds=0.5)))
    dist.destroy_process_group()
    dist.init_process_group("mpi")  # a second time, with another store
    dist.barrier()
    dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    assert "DISTDBG_STORE" not in os.environ


if __name__ == "__main__":
    main(*sys.argv[1:])
