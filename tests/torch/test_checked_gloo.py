"""torch's gloo under our check: what it hangs, crashes or keeps quiet on is our MismatchError."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from warm_ranks import LIMIT_S, run_warm_ranks

import distdbg as dist
from distdbg.errors import DistError, MismatchError, OpTimeout, PeerLost

if TYPE_CHECKING:
    from warm_python import WarmPython

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]


@pytest.fixture
def gloo_ranks(warm_python: WarmPython, tmp_path: Path) -> Callable[..., list[Any]]:
    return partial(
        run_warm_ranks,
        warm_python,
        tmp_path,
        env={"TORCH_GLOO_STORE": os.fspath(tmp_path / "gloo")},
    )


def caught(function: Callable[[], object]) -> DistError:
    with pytest.raises(DistError) as info:
        function()
    return info.value


def wrong_programs(rank: int) -> list[tuple[str, Callable[[], object]]]:
    """Those of the scoreboard that are collectives; rank 1 is the odd one."""
    is_odd = rank == 1
    x = torch.ones(4)
    blocks = [torch.zeros(4) for _ in range(3)]
    dst = 1 if is_odd else 0
    splits = [1, 1, 2] if is_odd else [1, 1, 1]
    dtype = torch.int32 if is_odd else torch.float32
    wide = torch.arange(6.0).reshape(3, 2).t() if is_odd else torch.ones(2, 3)
    several = [torch.ones(2), torch.ones(3 if is_odd else 4)]

    def exchange() -> None:
        dist.all_to_all_single(torch.ones(3), torch.ones(sum(splits)), [1, 1, 1], splits)

    def exchange_dtype() -> None:
        dist.all_to_all_single(torch.ones(3, dtype=dtype), torch.ones(3, dtype=dtype))

    def in_order() -> None:
        steps = [lambda: dist.all_reduce(x), lambda: dist.broadcast(x, 0)]
        for step in reversed(steps) if is_odd else steps:
            step()

    return [
        ("shape", lambda: dist.all_reduce(torch.ones(3 if is_odd else 4))),
        ("ndim", lambda: dist.all_reduce(torch.ones(2, 2) if is_odd else x)),
        ("dtype", lambda: dist.all_reduce(torch.ones(4, dtype=dtype))),
        ("kind", lambda: dist.broadcast(x, 0) if is_odd else dist.all_reduce(x)),
        ("barrier", lambda: dist.barrier() if is_odd else dist.all_reduce(x)),
        ("op", lambda: dist.all_reduce(x, dist.ReduceOp.MAX if is_odd else dist.ReduceOp.SUM)),
        ("root", lambda: dist.broadcast(x, dst)),
        ("reduce dst", lambda: dist.reduce(x, dst)),
        ("gather dst", lambda: dist.gather(x, blocks if rank == dst else None, dst)),
        ("splits", exchange),
        ("a2a dtype", exchange_dtype),
        ("stride", lambda: dist.all_reduce(wide)),
        ("order", in_order),
        ("coalesced shape", lambda: dist.all_reduce_coalesced(several)),
    ]


def find_all() -> list[tuple[str, str, list[int], bool]]:
    import torch_gloo

    rank = torch_gloo.init()
    found = []
    for name, program in wrong_programs(rank):
        error = caught(program)
        assert isinstance(error, MismatchError), (name, error)
        lines = [line for line in error.details if "test_checked_gloo.py:" in line]
        # Each side's, or one for all ranks.
        is_reported = len(lines) > 1 or lines[0].startswith("ranks 0-2 called") or name == "splits"
        found.append((name, error.what, error.ranks, is_reported))
        x = torch.ones(2)
        dist.all_reduce(x)
        assert x.tolist() == [3.0, 3.0]
    dist.destroy_process_group()
    return found


def test_every_wrong_collective_is_told_alike_with_the_odd_rank_and_both_lines(
    gloo_ranks: Callable[..., list[Any]],
) -> None:
    first, *others = gloo_ranks(find_all, 3)
    assert all(other == first for other in others)
    assert len(first) == 14
    for name, what, ranks, is_reported in first:
        assert ranks == ([1, 2] if name == "splits" else [1]), (name, what)
        assert is_reported, (name, what)


def receive_wrongly(what: str) -> str:
    import torch_gloo

    rank = torch_gloo.init()
    if rank == 0:
        error = caught(lambda: (dist.send(torch.ones(4), 1), dist.barrier()))
    else:
        x = torch.zeros(4, dtype=torch.int32) if what == "dtype" else torch.zeros(3)
        error = caught(lambda: dist.recv(x, 0))
        assert not x.any()
    assert isinstance(error, MismatchError)
    dist.destroy_process_group()
    return error.what


@pytest.mark.parametrize("what", ["dtype", "shape"])
def test_wrong_messages_are_told_to_both_sides(
    gloo_ranks: Callable[..., list[Any]], what: str
) -> None:
    first, second = gloo_ranks(receive_wrongly, 2, what=what)
    assert first == second
    assert "rank 0 sent 4 float32, rank 1 expects" in first


def run_legal() -> None:
    import torch_gloo

    rank = torch_gloo.init()
    n = dist.get_world_size()
    x = torch.ones(1)
    if rank == 0:
        dist.send(x, 1)
    if rank == 1:
        dist.recv(x, 0)
    dist.barrier()
    groups = [dist.new_group(), dist.new_group()]
    for _ in range(10):
        order = groups if rank != 1 else groups[::-1]
        works = [dist.all_reduce(torch.ones(4), group=g, async_op=True) for g in order]
        for work in works:
            assert work is not None
            assert work.wait()
    objects: list[Any] = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(n)]
    a, b = torch.ones(2), torch.ones(3)
    dist.all_reduce_coalesced([a, b])
    assert a[0] == b[0] == n
    if rank:
        dist.send(torch.full((2,), float(rank)), 0)
    else:
        for _ in range(1, n):
            y = torch.zeros(2)
            assert dist.recv(y) == int(y[0])
    dist.barrier()
    dist.destroy_process_group()


def test_programs_that_trouble_other_checkers_pass(gloo_ranks: Callable[..., list[Any]]) -> None:
    gloo_ranks(run_legal, 3)


def lose_a_rank(when: str) -> None:
    import torch_gloo

    # Who only hears of the death by its timeout is a rank that hangs.
    rank = torch_gloo.init(timeout_s=2 * LIMIT_S)
    dist.barrier()
    if rank == 1 and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1:  # it agrees, and dies in the backend
        torch_gloo.TorchGloo.allreduce = lambda *args: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment,misc]
    error = caught(lambda: dist.all_reduce(torch.ones(4)))
    assert isinstance(error, PeerLost), error
    assert error.peer == 1
    assert "SIGKILL" in str(error)
    dist.destroy_process_group()


@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_rank_that_dies_is_named_at_once(gloo_ranks: Callable[..., list[Any]], when: str) -> None:
    gloo_ranks(lose_a_rank, 3, when=when, expect_exit={1: -signal.SIGKILL})


def wait_for_one(folder: str) -> list[int]:
    import torch_gloo

    rank = torch_gloo.init()

    def let_know(what: str) -> None:
        Path(folder, f"{what}-{rank}").touch()

    def see_both(what: str) -> None:
        deadline = time.monotonic() + LIMIT_S / 2
        while not all(Path(folder, f"{what}-{each}").exists() for each in (0, 1)):
            assert time.monotonic() < deadline, f"ranks 0 and 1 have not both {what}"
            time.sleep(0.01)  # nothing announces a file

    pg = dist.group.WORLD
    assert pg is not None
    dist.barrier()
    if rank == 2:
        see_both("timed out")  # so late it is
        return [2]
    work = dist.all_reduce(torch.ones(1), async_op=True)
    assert work is not None
    let_know("called")
    see_both("called")
    error = caught(lambda: work.wait(timedelta(seconds=0.5)))
    assert isinstance(error, OpTimeout)
    let_know("timed out")
    os._exit(0 if error.missing == [2] else 1)


def test_a_late_rank_is_named_where_gloo_says_timed_out(
    gloo_ranks: Callable[..., list[Any]], tmp_path: Path
) -> None:
    gloo_ranks(wait_for_one, 3, folder=os.fspath(tmp_path))
