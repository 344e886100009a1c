"""Names of backends, which of them are there, and backends of others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from tests.parity.promise import on_ranks, promise


class Ended:
    """The handle of an op that has ended."""

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class Theirs:
    """A backend as somebody else would write it: one rank's, with one collective."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        self.place = (rank, size, timeout)
        self.store = store
        self.is_over = False

    def allreduce(self, tensors: list[Any], opts: dist.AllreduceOptions) -> Ended:
        assert opts.reduceOp == dist.ReduceOp.SUM
        tensors[0][...] = 42
        return Ended()

    def barrier(self, opts: dist.BarrierOptions) -> Ended:
        raise OSError("the wire is cut")

    def shutdown(self) -> None:
        self.is_over = True


@pytest.fixture
def made() -> Iterator[list[Theirs]]:
    """The backends that were made under the name `promised`."""
    made: list[Theirs] = []

    def make(*place: Any) -> Theirs:
        made.append(Theirs(*place))
        return made[-1]

    dist.Backend.register_backend("promised", make, devices=["cpu"])
    yield made
    dist.Backend.unregister_backend("promised")


def run_theirs(function: Any) -> None:
    def run(rank: int) -> None:
        store = dist.HashStore()
        limit = timedelta(seconds=7)
        dist.init_process_group("promised", store=store, rank=0, world_size=1, timeout=limit)
        function()

    on_ranks(run, 1, is_initialized=False)


@promise("`Backend` turns a name into lower case: `Backend('GLOO')` is `'gloo'`")
def test_backend_names() -> None:
    assert dist.Backend("GLOO") == "gloo" == dist.Backend.GLOO
    assert isinstance(dist.Backend("gloo"), str)


@promise("The names of the backends are attributes of `Backend`")
def test_backend_attributes() -> None:
    names = ("GLOO", "NCCL", "MPI", "UCC", "XCCL", "UNDEFINED")
    assert all(getattr(dist.Backend, name) == name.lower() for name in names)


@promise("`Backend` takes text and nothing else")
def test_backend_of_a_number() -> None:
    with pytest.raises(ValueError, match="str"):
        dist.Backend(3)  # type: ignore[arg-type]


@promise("`is_gloo_available`, `is_nccl_available` and the like tell which backends are there")
def test_availability() -> None:
    assert dist.is_gloo_available() is True
    assert dist.is_xccl_available() is False
    assert dist.is_nccl_available() is dist.is_backend_available("nccl")
    assert dist.is_mpi_available() is dist.is_backend_available("mpi")
    assert dist.is_ucc_available() is dist.is_backend_available("ucc")


@promise("`is_backend_available` tells it of any name, also of registered ones")
def test_is_backend_available(made: list[Theirs]) -> None:
    assert dist.is_backend_available("gloo")
    assert dist.is_backend_available("promised")
    assert not dist.is_backend_available("xccl")
    assert not dist.is_backend_available("nobodys")


@promise("A backend that is not there is refused by `init_process_group`")
@pytest.mark.parametrize("name", ["xccl", "nobodys"])
def test_a_backend_that_is_not_there(name: str) -> None:
    def run(rank: int) -> None:
        with pytest.raises(dist.DistBackendError, match=name):
            dist.init_process_group(name, store=dist.HashStore(), rank=0, world_size=1)

    on_ranks(run, 1, is_initialized=False)


@promise("`'cpu:gloo,cuda:nccl'` names a backend for each device")
def test_a_backend_for_each_device() -> None:
    config = dist.BackendConfig(dist.Backend("cpu:gloo,cuda:nccl"))
    assert config.get_device_backend_map() == {"cpu": "gloo", "cuda": "nccl"}

    def run(rank: int) -> str:
        store = dist.HashStore()
        dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
        dist.barrier()
        return dist.get_backend_config()

    assert on_ranks(run, 1, is_initialized=False) == ["cpu:gloo,cuda:nccl"]


@promise("`get_default_backend_for_device` returns `gloo` for the CPU and `nccl` for CUDA")
def test_default_backends() -> None:
    assert dist.get_default_backend_for_device("cpu") == "gloo"
    assert dist.get_default_backend_for_device("cuda:0") == "nccl"
    with pytest.raises(ValueError, match="tpu"):
        dist.get_default_backend_for_device("tpu")


@promise("`register_backend` makes a name a backend, which `init_process_group` then makes")
def test_register_backend(made: list[Theirs]) -> None:
    def check() -> None:
        assert dist.get_backend() == "promised"
        x = np.zeros(2)
        dist.all_reduce(x)
        assert (x == 42).all()

    run_theirs(check)
    assert len(made) == 1


@promise("The maker of a backend gets the store, the rank, the world size and the timeout")
def test_what_the_maker_gets(made: list[Theirs]) -> None:
    run_theirs(lambda: made[0].store.set("key", "x"))
    assert made[0].place == (0, 1, timedelta(seconds=7))


@promise("With `extended_api` the maker gets an object with all facts of the group, and options")
def test_the_extended_form() -> None:
    seen: list[Any] = []

    def make(facts: dist.DistributedBackendOptions, options: object) -> Theirs:
        seen.append((facts.group_rank, facts.group_size, facts.global_ranks_in_group, options))
        return Theirs(facts.store, facts.group_rank, facts.group_size, facts.timeout)

    dist.Backend.register_backend("promised_more", make, extended_api=True, devices="cpu")
    try:
        store = dist.HashStore()
        on_ranks(
            lambda _: dist.init_process_group(
                "promised_more", store=store, rank=0, world_size=1, pg_options={"a": 1}
            ),
            1,
            is_initialized=False,
        )
    finally:
        dist.Backend.unregister_backend("promised_more")
    assert seen == [(0, 1, [0], {"a": 1})]


@promise("A registered backend is an attribute of `Backend`, listed with its devices")
def test_a_registered_name(made: list[Theirs]) -> None:
    assert dist.Backend.PROMISED == "promised"  # type: ignore[attr-defined]
    assert "promised" in dist.Backend.backend_list
    assert dist.Backend.backend_capability["promised"] == ["cpu"]


@promise("A name can be registered once")
def test_registered_twice(made: list[Theirs]) -> None:
    for name in ("promised", "gloo"):
        with pytest.raises(RuntimeError, match="already registered"):
            dist.Backend.register_backend(name, Theirs)


@promise("An op that a registered backend does not have raises")
def test_an_op_that_is_not_there(made: list[Theirs]) -> None:
    def check() -> None:
        with pytest.raises(dist.DistBackendError, match="broadcast"):
            dist.broadcast(np.zeros(1), 0)

    run_theirs(check)


@promise(
    "What a registered backend raises reaches the caller",
    here="different",
    note="as the cause of a `DistBackendError`",
)
def test_an_error_of_a_backend(made: list[Theirs]) -> None:
    def check() -> None:
        with pytest.raises(dist.DistBackendError, match="the wire is cut") as caught:
            dist.barrier()
        assert isinstance(caught.value.__cause__, OSError)

    run_theirs(check)


@promise("`destroy_process_group` shuts a registered backend down")
def test_shutdown_of_a_backend(made: list[Theirs]) -> None:
    run_theirs(dist.destroy_process_group)
    assert made[0].is_over
