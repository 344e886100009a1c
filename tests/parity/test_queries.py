"""What may be asked about the job once it is initialized."""

from __future__ import annotations

import pytest

import distdbg as dist
from distdbg.runtime.process.world import World, use
from tests.parity.promise import on_ranks, promise


@promise("`is_initialized` returns whether the default group is there")
def test_is_initialized() -> None:
    with use(World()):
        assert dist.is_initialized() is False
    assert on_ranks(lambda _: dist.is_initialized(), 1) == [True]


@promise("`get_rank` and `get_world_size` number and count the ranks of the default group")
def test_rank_and_size() -> None:
    assert on_ranks(lambda _: (dist.get_rank(), dist.get_world_size()), 3) == [
        (0, 3),
        (1, 3),
        (2, 3),
    ]


@promise("`get_rank` and `get_world_size` of a group are -1 on ranks that are not in it")
def test_rank_and_size_outside() -> None:
    def run(rank: int) -> tuple[int, int]:
        group = dist.new_group([1])
        return dist.get_rank(group), dist.get_world_size(group)

    assert on_ranks(run) == [(-1, -1), (0, 1)]


@promise("`get_backend` returns the backend of a group as text in lower case")
def test_get_backend() -> None:
    def run(rank: int) -> str:
        group = dist.new_group(backend="GLOO")
        assert isinstance(dist.get_backend(group), str)
        return dist.get_backend(group)

    assert on_ranks(run) == ["gloo", "gloo"]


@promise("`get_backend` of a group that this rank is not in raises")
def test_get_backend_outside() -> None:
    def run(rank: int) -> None:
        group = dist.new_group([1])
        if rank == 0:
            with pytest.raises(ValueError, match="not in the given group"):
                dist.get_backend(group)

    on_ranks(run)


@promise("`get_backend_config` returns the backend of each device")
def test_get_backend_config() -> None:
    assert on_ranks(lambda _: dist.get_backend_config(), 1) == ["cpu:gloo,cuda:gloo"]


@promise("`get_pg_count` counts the groups")
def test_get_pg_count() -> None:
    def run(rank: int) -> tuple[int, int]:
        before = dist.get_pg_count()
        dist.new_group()
        return before, dist.get_pg_count()

    assert on_ranks(run) == [(1, 2), (1, 2)]


@promise("`get_node_local_rank` returns `LOCAL_RANK`, else the number given for that case")
def test_get_node_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert dist.get_node_local_rank() == dist.get_node_local_rank(0) == 3
    monkeypatch.delenv("LOCAL_RANK")
    assert dist.get_node_local_rank(7) == 7


@promise("`get_node_local_rank` without `LOCAL_RANK` and without a number raises")
def test_no_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(RuntimeError, match="LOCAL_RANK"):
        dist.get_node_local_rank()


@promise("`is_torchelastic_launched` returns whether a launcher set `TORCHELASTIC_RUN_ID`")
def test_is_torchelastic_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert dist.is_torchelastic_launched() is False
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    assert dist.is_torchelastic_launched() is True


@promise("`group.WORLD` is the default group, and `None` before it is made")
def test_group_world() -> None:
    with use(World()):
        assert dist.group.WORLD is None
    assert on_ranks(lambda _: isinstance(dist.group.WORLD, dist.ProcessGroup), 1) == [True]


@promise("Questions about groups before `init_process_group` raise `ValueError`")
def test_questions_too_early() -> None:
    with use(World()):
        for ask in (dist.get_rank, dist.get_world_size, dist.get_backend):
            with pytest.raises(ValueError, match="init_process_group"):
                ask()
