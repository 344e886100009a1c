"""init_process_group: where the ranks meet, what must be given, and what is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

import distdbg as dist
from distdbg.runtime.process.world import World, use
from tests.parity.promise import on_ranks, promise
from tests.support.ports import free_port


def total() -> int:
    """What an all_reduce of ones gives on the default group."""
    x = np.ones(1, np.int64)
    dist.all_reduce(x)
    return int(x[0])


def meet(init: Callable[[int], None], size: int = 2) -> list[int]:
    """The totals of ranks that initialize as they are told."""

    def run(rank: int) -> int:
        init(rank)
        assert dist.get_rank() == rank
        return total()

    return on_ranks(run, size, is_initialized=False)


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@promise("`is_available` returns whether the package can be used")
def test_is_available() -> None:
    assert dist.is_available() is True


@promise("`init_process_group` makes the default group")
def test_init_makes_the_default_group() -> None:
    with use(World()):
        assert not dist.is_initialized()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        assert dist.is_initialized()
        dist.destroy_process_group()


@promise("`init_process_group` returns when all ranks have called it")
def test_init_waits_for_all() -> None:
    store = dist.HashStore()
    is_last_there = threading.Event()

    def init(rank: int) -> None:
        if rank == 1:
            time.sleep(0.05)
            is_last_there.set()
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        assert is_last_there.is_set()

    assert meet(init) == [2, 2]


@promise("With `store`, `rank` and `world_size` the ranks meet in that store")
def test_init_with_a_store() -> None:
    store = dist.HashStore()
    meet(lambda rank: dist.init_process_group("gloo", store=store, rank=rank, world_size=2))
    assert store.num_keys() > 0


@promise("`store` needs `rank` and `world_size`")
def test_a_store_needs_rank_and_size() -> None:
    with use(World()):
        with pytest.raises(ValueError, match="world_size"):
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0)
        with pytest.raises(ValueError, match="rank"):
            dist.init_process_group("gloo", store=dist.HashStore(), world_size=1)


@promise("`init_method` and `store` exclude each other")
def test_init_method_or_store() -> None:
    with use(World()), pytest.raises(ValueError, match="init_method or store"):
        dist.init_process_group("gloo", "env://", store=dist.HashStore(), rank=0, world_size=1)


@promise("`tcp://host:port` lets the ranks meet at an address of rank 0")
def test_init_at_a_tcp_address() -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    assert meet(lambda rank: dist.init_process_group("gloo", url, rank=rank, world_size=2)) == [
        2,
        2,
    ]


@promise("`file:///path` lets the ranks meet in a file that all can reach")
def test_init_in_a_file(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/some_file"
    assert meet(lambda rank: dist.init_process_group("gloo", url, rank=rank, world_size=2)) == [
        2,
        2,
    ]


@promise("The file of `file://` is made when it is missing; its folder must be there")
def test_the_folder_of_the_file(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/no_folder/some_file"
    with use(World()), pytest.raises(RuntimeError, match="no_folder"):
        dist.init_process_group("gloo", url, rank=0, world_size=1)


@promise("The file of `file://` is removed at the end")
def test_the_file_is_removed(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/some_file"
    meet(lambda rank: dist.init_process_group("gloo", url, rank=rank, world_size=2))
    assert list(tmp_path.iterdir()) == []


@promise(
    "The same file may be used again once it is removed",
    here="more",
    note="the same URL serves again, whatever is left of an earlier run",
)
def test_the_file_serves_again(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/some_file"

    def twice(rank: int) -> None:
        for _ in range(2):
            dist.init_process_group("gloo", url, rank=rank, world_size=2)
            assert total() == 2
            dist.destroy_process_group()

    on_ranks(twice, is_initialized=False)


@promise("`tcp://` and `file://` need `rank` and `world_size`")
@pytest.mark.parametrize("scheme", ["tcp://127.0.0.1:1", "file:///tmp/never_made"])
def test_a_url_needs_rank_and_size(scheme: str) -> None:
    with use(World()):
        with pytest.raises(ValueError, match="rank"):
            dist.init_process_group("gloo", scheme, world_size=1)
        with pytest.raises(ValueError, match="world_size"):
            dist.init_process_group("gloo", scheme, rank=0)


@promise("`rank` and `world_size` may stand in the query of the URL")
def test_rank_and_size_in_the_url() -> None:
    url = f"tcp://127.0.0.1:{free_port()}?world_size=2"
    assert meet(lambda rank: dist.init_process_group("gloo", f"{url}&rank={rank}")) == [2, 2]


@promise("Without `init_method` and `store` the environment is read: `env://` is the default")
@pytest.mark.parametrize("method", [None, "env://"])
def test_init_from_the_environment(monkeypatch: pytest.MonkeyPatch, method: str | None) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    assert meet(lambda _: dist.init_process_group("gloo", method), 1) == [1]


@promise("`rank` and `world_size` may be given in the call where the environment has none")
def test_rank_and_size_beside_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    init = lambda rank: dist.init_process_group("gloo", rank=rank, world_size=2)  # noqa: E731
    assert meet(init) == [2, 2]


@promise("`env://` raises and names the variable that is missing")
@pytest.mark.parametrize("name", ["MASTER_PORT", "WORLD_SIZE", "RANK"])
def test_a_missing_variable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    values = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "WORLD_SIZE": "1", "RANK": "0"}
    for variable, value in values.items():
        if variable != name:
            monkeypatch.setenv(variable, value)
    with use(World()), pytest.raises((ValueError, RuntimeError), match=name):
        dist.init_process_group("gloo", "env://", timeout=timedelta(seconds=5))


@promise("A second `init_process_group` without `destroy_process_group` raises `ValueError`")
def test_init_twice() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="twice"):
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    on_ranks(run, 1)


@promise("A rank that never calls it ends `init_process_group` of the others after `timeout`")
def test_a_rank_does_not_come() -> None:
    with use(World()):
        with pytest.raises(RuntimeError) as caught:
            dist.init_process_group(
                "gloo",
                store=dist.HashStore(),
                rank=0,
                world_size=2,
                timeout=timedelta(seconds=0.05),
            )
        assert getattr(caught.value, "missing", None) == [1]
        assert not dist.is_initialized()


@promise(
    "Without `backend` the CPU has `gloo` and CUDA has `nccl`",
    here="different",
    note="CUDA has `gloo` as well",
)
def test_init_without_a_backend() -> None:
    def run(rank: int) -> None:
        store = dist.HashStore()
        dist.init_process_group(store=store, rank=0, world_size=1)
        assert dist.get_backend_config() == "cpu:gloo,cuda:gloo"

    on_ranks(run, 1, is_initialized=False)


@promise("`timeout` limits the ops of the group; without it the limit is 30 minutes")
def test_the_default_timeout() -> None:
    assert dist.default_pg_timeout == timedelta(minutes=30)

    def run(rank: int) -> None:
        if rank == 0:
            with pytest.raises(RuntimeError, match="rank 1"):
                dist.barrier()

    # It limits the meeting of the ranks as well, which has to succeed on a busy machine.
    on_ranks(run, timeout_s=3)


@promise("`group_name` is the name of the default group")
def test_group_name() -> None:
    def run(rank: int) -> None:
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, group_name="job")
        assert dist.group.WORLD is not None
        assert dist.group.WORLD.group_name == "job"

    on_ranks(run, 1, is_initialized=False)


@promise("A scheme that nobody serves is refused")
def test_an_unknown_scheme() -> None:
    with use(World()), pytest.raises((ValueError, RuntimeError), match="quic"):
        dist.init_process_group("gloo", "quic://somewhere", rank=0, world_size=1)


@promise("`register_rendezvous_handler` makes a function serve the URLs of a scheme")
def test_a_rendezvous_handler() -> None:
    store = dist.HashStore()

    def handler(url: str, timeout: timedelta | None = None) -> object:
        query = parse_qs(urlsplit(url).query)
        yield store, int(query["rank"][0]), int(query["world_size"][0])

    dist.register_rendezvous_handler("promised", handler)  # type: ignore[arg-type]
    init = lambda rank: dist.init_process_group("gloo", f"promised://?rank={rank}&world_size=2")  # noqa: E731
    assert meet(init) == [2, 2]
    with pytest.raises((ValueError, RuntimeError), match="promised"):
        dist.register_rendezvous_handler("promised", handler)  # type: ignore[arg-type]


@promise("`rendezvous` yields a store, the rank and the world size")
def test_rendezvous(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/some_file"
    store, rank, size = next(iter(dist.rendezvous(url, rank=0, world_size=1)))
    store.set("key", "x")
    assert (rank, size, store.get("key")) == (0, 1, b"x")
    getattr(store, "underlying_store", store).close()  # type: ignore[attr-defined]
