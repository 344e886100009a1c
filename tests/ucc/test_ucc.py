"""Groups over UCC: by a stand-in for libucc that is compiled here, and by libucc where it is installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.control.clock import FREE_CLOCK
from distdbg.errors import BackendMissingError, DistBackendError, DistError, UsageError
from distdbg.runtime.backends.registry import check_available
from distdbg.runtime.backends.ucc import library
from distdbg.runtime.backends.ucc.backend import UccWork
from distdbg.runtime.backends.ucc.library import (
    Arguments,
    BootstrapExchange,
    ContextParams,
    TeamParams,
)
from distdbg.runtime.backends.ucc.memory import HeldMemory, check_places, give, take
from distdbg.testing.conformance.group import Api, run_checks
from tests.unit.nccl.stand_in import StandInArray

LIBRARIES = ["stand-in"] if library.why_not() else ["stand-in", "libucc"]


@pytest.fixture(params=LIBRARIES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What the ranks load; '' is libucc."""
    if request.param == "libucc":
        return ""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is missing")
    made, source = tmp_path / "libucc.so", Path(__file__).with_name("stand_in.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return str(made)


def begin(path: str) -> int:
    if path:
        library.load([path])
    dist.init_process_group("ucc")
    return dist.get_rank()


def caught(function: Callable[[], object]) -> list[str]:
    try:
        function()
    except DistError as error:
        return [type(error).__name__, error.what]
    return ["nothing", ""]


def use(path: str) -> dict[str, Any]:
    rank = begin(path)
    found: dict[str, Any] = {"available": dist.is_ucc_available(), "backend": dist.get_backend()}
    found["failures"] = run_checks(Api(dist, np.array, np.ndarray.tolist))
    found["message"] = message_mismatch(rank)
    either = np.array([rank == 1, False])
    dist.all_reduce(either)
    mean = np.array([rank, -rank - 1])
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    columns = np.zeros((2, 3))[:, ::2]
    dist.broadcast(columns if rank else np.ones((2, 2)), 0)
    blocks = [np.zeros(n + 1, np.int64) for n in range(3)]
    dist.all_gather(blocks, np.full(rank + 1, rank))
    part = np.zeros(rank + 1, np.int64)
    dist.reduce_scatter(part, [np.full(n + 1, n + rank) for n in range(3)])
    own = np.full(6, rank, np.float32)  # its own block lies in the output
    dist.all_gather_into_tensor(own, own[2 * rank : 2 * rank + 2])
    arrays = [either, mean, columns if rank else None, *blocks, part, own]
    found["results"] = [None if x is None else x.tolist() for x in arrays]
    found["differs"] = caught(lambda: dist.all_reduce(np.ones(3 if rank == 1 else 4)))
    last = np.ones(1)
    dist.all_reduce(last)
    found["goes on"] = last.tolist()
    dist.destroy_process_group()
    return found


def message_mismatch(rank: int) -> list[str]:
    pair = dist.new_group([0, 1], backend="ucc")
    if rank == 0:
        return caught(lambda: (dist.send(np.ones(2), 1, group=pair), dist.barrier(pair)))
    if rank == 1:
        return caught(lambda: dist.recv(np.zeros(3), 0, group=pair))
    return []


def lose_a_message(path: str) -> list[Any]:
    rank = begin(path)
    late = caught(lambda: dist.recv(np.ones(2), 1, tag=3)) if rank == 0 else []
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return late


def lose(path: str) -> dict[str, Any]:
    rank = begin(path)
    other = dist.new_group(backend="ucc")
    assert dist.group.WORLD is not None
    store = dist.group.WORLD.get_group_store()
    if rank == 1:
        store.wait(["rank 0 has waited"])
        os.kill(os.getpid(), signal.SIGKILL)
    late = caught(lambda: dist.all_reduce(np.ones(2), group=other, timeout=0.2))
    store.set("rank 0 has waited", "")
    return {"late": late, "lost": caught(lambda: dist.all_reduce(np.ones(2)))}


@pytest.mark.ranks
def test_all_that_groups_do_works_over_ucc(ranks: Callable[..., Any], path: str) -> None:
    for rank, found in enumerate(ranks(use, 3, path=path)):
        assert (found["available"], found["backend"], found["failures"]) == (True, "ucc", {})
        if rank < 2:
            assert found["message"][0] == "MismatchError"
            assert "rank 0 sent 2 float64, rank 1 expects 3 float64" in found["message"][1]
        assert found["results"] == [
            [True, False],
            [1, -2],
            [[1, 1], [1, 1]] if rank else None,
            [0],
            [1, 1],
            [2, 2, 2],
            [3 + 3 * rank] * (rank + 1),
            [0, 0, 1, 1, 2, 2],
        ]
        assert found["differs"][0] == "MismatchError"
        assert found["goes on"] == [3]


@pytest.mark.ranks
def test_who_is_late_and_who_is_gone_is_told(ranks: Callable[..., Any], path: str) -> None:
    found = ranks(lose, 2, path=path, expect_exit={1: -signal.SIGKILL})[0]
    assert found["late"][0] == "OpTimeout"
    assert "for rank 1 of 0-1" in found["late"][1]
    assert found["lost"][0] == "PeerLost"


@pytest.mark.ranks
def test_whoever_waits_for_a_message_is_told_of_a_death(
    ranks: Callable[..., Any], path: str
) -> None:
    found = ranks(lose_a_message, 2, path=path, expect_exit={1: -signal.SIGKILL})[0]
    assert found[0] == "PeerLost"
    assert "rank 1 died (signal 9, SIGKILL)" in found[1]


def test_without_libucc_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "NAMES", ("libucc-that-is-nowhere.so",))
    assert not dist.is_ucc_available()
    with pytest.raises(BackendMissingError, match=r"'ucc' is not available here: libucc-that-is"):
        check_available(dist.BackendConfig("ucc"))
    with pytest.raises(BackendMissingError) as reported:
        library.load(["libc.so.6"])
    assert "libc.so.6 has no ucc_init_version" in reported.value.what
    assert reported.value.hint == library.INSTALL
    assert "libucc1" in library.INSTALL


def test_structures_are_laid_out_as_in_the_interface() -> None:
    """The numbers are those of a C compiler for the public header, on machines of 64 bits."""
    at: Callable[[Any, str], int] = lambda kind, name: getattr(kind, name).offset  # noqa: E731
    assert [at(BootstrapExchange, x) for x in ("allgather", "free", "info", "place")] == [
        0,
        16,
        24,
        36,
    ]
    assert at(ContextParams, "exchange") == 16
    fields = ("ordering", "place", "places", "size", "exchange")
    assert [at(TeamParams, x) for x in fields] == [16, 32, 48, 56, 72]
    fields = ("kind", "source", "target", "op", "flags", "root", "tag", "timeout_s", "first")
    assert [at(Arguments, x) for x in fields] == [8, 16, 56, 96, 104, 112, 124, 152, 160]


def test_arrays_on_a_gpu_are_named_as_such() -> None:
    x = StandInArray(np.ones((2, 4), np.float32))
    held = HeldMemory()
    for piece in (take([x], held), give([x], held)):
        assert (piece.address, piece.counts, piece.memory_type) == (x.address, (8,), library.CUDA)
    assert held.finish == []
    columns = StandInArray(x.host[:, ::2])
    assert give([columns], held).address != columns.address
    assert len(held.finish) == 1  # what was written is brought back
    assert take([x.host], held).memory_type == library.HOST
    with pytest.raises(UsageError, match="some of its arrays are on the host and some on a GPU"):
        check_places("all_gather", [x, x.host])


def test_an_error_of_the_copy_back_ends_the_op_and_its_request_is_asked_for_no_more() -> None:
    asked: list[str] = []
    team = SimpleNamespace(
        status=lambda _: asked.append("status") or 0, end=lambda _: asked.append("end")
    )
    backend: Any = SimpleNamespace(team=team, clock=FREE_CLOCK, is_aborted=False, ended=print)

    def fail() -> None:
        raise RuntimeError("an illegal memory access")

    work = UccWork(backend, None, HeldMemory(finish=[fail]), timedelta(seconds=5))
    assert work.is_completed()
    for _ in range(2):
        with pytest.raises(DistBackendError, match="RuntimeError: an illegal memory access"):
            work.wait()
    assert asked == ["status", "status", "end"]
