"""The watching ends on all ranks when it ends on one, and the program goes on."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from begin import begin
from warm_ranks import run_warm_ranks

from tests.support.ports import free_port

if TYPE_CHECKING:
    from warm_python import WarmPython

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]


def warned(function: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(each.message) for each in caught if "distdbg" in str(each.message)]


def fails_in_the_middle() -> list[Any]:
    dist = begin()
    from distdbg.torch_bridge.guarded import switch_off

    rank = dist.get_rank()
    x, y = torch.ones(4), torch.ones(2)
    dist.all_reduce(x)
    early = dist.all_reduce(y, async_op=True) if rank == 0 else None

    def ends() -> None:
        if rank == 1:
            time.sleep(0.3)  # the other is in an op by then; nothing announces it
            switch_off("a bug")
            dist.all_reduce(y)
        dist.all_reduce(x)
        if early is not None:
            early.wait()
        dist.all_gather([torch.zeros(4), torch.zeros(4)], x)
        dist.barrier()

    found = warned(ends)
    dist.destroy_process_group()
    return [float(x.sum()), float(y.sum()), found]


@pytest.mark.parametrize("level", ["info", "detail"])
def test_an_error_of_ours_on_one_rank_ends_the_watching_on_all(
    watched: Callable[..., list[Any]], level: str
) -> None:
    first, second = watched(fails_in_the_middle, level)
    assert first[:2] == second[:2] == [16.0, 4.0]
    assert second[2] == ["distdbg does not watch this torch job: a bug"]
    assert first[2] == [
        "distdbg does not watch this torch job: rank 1 watches this job no longer: a bug"
    ]


def fails_at_a_group() -> list[Any]:
    dist = begin()
    from distdbg.torch_bridge.world import WatchingWorld

    if dist.get_rank() == 1:

        def add(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("a bug")

        WatchingWorld.add = add  # type: ignore[method-assign]
    x = torch.ones(4)

    def ends() -> None:
        group = dist.new_group([0, 1])
        dist.all_reduce(x, group=group)
        dist.all_reduce(x)

    found = warned(ends)
    dist.destroy_process_group()
    return [float(x.sum()), found]


def test_a_rank_that_cannot_make_a_group_keeps_no_other_waiting(
    watched: Callable[..., list[Any]],
) -> None:
    (first, words), (second, others) = watched(fails_at_a_group)
    assert first == second == 16.0
    assert others == ["distdbg does not watch this torch job: a group: RuntimeError: a bug"]
    assert len(words) == 1
    assert words[0].endswith("rank 1: a group: RuntimeError: a bug")


def finds_another_torch() -> list[Any]:
    torch.__version__ = "2.3.0"
    ends: list[Any] = []
    found = warned(lambda: ends.append(begin()))
    (dist,) = ends
    x = torch.ones(4)
    dist.all_reduce(x)
    more = warned(lambda: dist.new_group([0, 1]))
    dist.barrier()  # who leaves while the other rank still connects in gloo ends that one
    dist.destroy_process_group()
    return [float(x.sum()), found, more]


def test_a_torch_that_is_too_old_is_told_once_and_the_job_runs(
    watched: Callable[..., list[Any]], tmp_path: Path
) -> None:
    for total, found, more in watched(finds_another_torch):
        assert total == 8.0
        assert len(found) == 1
        assert found[0].startswith(
            "distdbg does not watch this torch job: ConfigError: torch 2.3.0"
        )
        assert not more
    assert not list((tmp_path / "run").glob("*.ddr"))


def leaves_with_the_store(delay_s: float) -> list[Any]:
    from distdbg.torch_bridge.hook import install

    install()
    import torch.distributed as dist

    from distdbg.torch_bridge.world import WatchingWorld

    dist.init_process_group("gloo")  # in a store that rank 0 serves
    rank = dist.get_rank()
    if rank == 1:
        add = WatchingWorld.add

        def late(*args: Any, **kwargs: Any) -> Any:
            time.sleep(delay_s)  # rank 0 has nothing else to do, and would be gone
            return add(*args, **kwargs)

        WatchingWorld.add = late  # type: ignore[method-assign]
    x = torch.ones(4)
    found = warned(lambda: dist.all_reduce(x, group=dist.new_group([1, 2])) if rank else None)
    if rank == 0:
        dist.new_group([1, 2])
        dist.destroy_process_group()
        os._exit(0)
    return [float(x.sum()), found]


def test_a_rank_stays_until_the_others_have_made_their_group(
    warm_python: WarmPython, tmp_path: Path
) -> None:
    env = {
        "PYTHONPATH": os.pathsep.join(sys.path[:2]),
        "DISTDBG_RUN_DIR": os.fspath(tmp_path / "run"),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    results = run_warm_ranks(warm_python, tmp_path, leaves_with_the_store, 3, env=env, delay_s=0.5)
    assert results[1:] == [[8.0, []]] * 2
