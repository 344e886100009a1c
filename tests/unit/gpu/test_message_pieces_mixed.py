"""Messages in pieces where two ranks share a host and a third is on another, also in pieces of the real size.

The GPU is a stand-in; ranks are threads that say they are processes of several hosts: shared memory within
these, TCP between.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.runtime.backends.gpu import chunks, held_copies
from distdbg.runtime.rendezvous.process import ProcessIdentity, identify_self
from tests.unit.gpu.moving import copies, run
from tests.unit.gpu.stand_in import Machine

#: As it is shipped, and one that makes many pieces.
SIZES = [chunks.CHUNK_NBYTES, 4096]
#: The package has a function of that name.
JOIN = import_module("distdbg.runtime.rendezvous.join")


@pytest.fixture(params=[((0, 1), (2,)), ((0, 2), (1,))], ids=["01 2", "02 1"])
def _hosts(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    hosts: Sequence[Sequence[int]] = request.param
    host_of = {f"rank {rank}": number for number, ranks in enumerate(hosts) for rank in ranks}

    def identify() -> ProcessIdentity:
        number = host_of[threading.current_thread().name]
        return replace(identify_self(), host=f"node{number}", pid_namespace=number + 1)

    monkeypatch.setattr(JOIN, "identify_self", identify)


def values(nbytes: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


@pytest.mark.usefixtures("_hosts")
@pytest.mark.parametrize("ipc", ["off", "always"])
@pytest.mark.parametrize("chunk", SIZES)
def test_every_pair_of_three_ranks_exchanges_at_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, chunk: int, ipc: str
) -> None:
    """With IPC, what stays on a host is taken from the device, and the rest goes in pieces."""
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", chunk)
    monkeypatch.setenv("DISTDBG_GPU_IPC", ipc)
    nbytes = 3 * chunk + 5

    def program() -> list[bool]:
        rank = dist.get_rank()
        peers = [peer for peer in range(3) if peer != rank]
        got = {peer: machine.array(np.zeros(nbytes), np.uint8) for peer in peers}
        works: list[Any] = [dist.irecv(got[peer], peer, tag=peer) for peer in peers]
        for peer in peers:
            mine = machine.array(values(nbytes, 3 * rank + peer), np.uint8)
            works.append(dist.isend(mine, peer, tag=rank))
        for work in works:
            work.wait()
        return [bool((got[peer].host == values(nbytes, 3 * peer + rank)).all()) for peer in peers]

    assert run(program, 3) == [[True, True]] * 3
    in_pieces = [len([n for n in copies(machine, rank) if n == chunk]) for rank in range(3)]
    far = 3 * 2 * 2 * 3 if ipc == "off" else 3 * 2 * 2 * 2  # pieces, sides, directions, pairs
    assert sum(in_pieces) == far
    assert not held_copies._held


@pytest.mark.usefixtures("_hosts")
def test_a_recv_from_any_rank_takes_pieces_of_its_host_and_of_another(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", SIZES[1])
    monkeypatch.setenv("DISTDBG_GPU_IPC", "off")
    nbytes = 7 * SIZES[1] + 3

    def program() -> list[int]:
        rank, found = dist.get_rank(), []
        if rank:
            for _ in range(4):
                dist.send(machine.array(values(nbytes, rank), np.uint8), 0)
            return []
        for _ in range(8):
            x = machine.array(np.zeros(nbytes), np.uint8)
            source = dist.recv(x)
            assert (x.host == values(nbytes, source)).all()
            found.append(source)
        return sorted(found)

    assert run(program, 3)[0] == [1] * 4 + [2] * 4


@pytest.mark.usefixtures("_hosts")
def test_an_op_of_all_ranks_in_chunks_of_the_real_size(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_GPU_IPC", "off")
    count = 2 * chunks.CHUNK_NBYTES // 4 + 3

    def program() -> list[float]:
        x = machine.array(np.full(count, dist.get_rank() + 1), np.float32)
        dist.all_reduce(x)
        return [float(x.host.min()), float(x.host.max())]

    assert run(program, 3) == [[6.0, 6.0]] * 3
