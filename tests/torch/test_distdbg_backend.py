"""torch.distributed on our runtime: init_process_group("distdbg")."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import distdbg
from distdbg.errors import ConfigError, MismatchError, UsageError

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = [pytest.mark.torch, pytest.mark.ranks]
if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

Ranks = Callable[..., list[Any]]


@pytest.fixture
def ranks(warm_python: WarmPython, tmp_path: Path) -> Ranks:
    from warm_ranks import run_warm_ranks

    env = {"TORCH_STORE": f"file://{tmp_path}/torch-store", "GLOO_SOCKET_IFNAME": "lo"}
    return partial(run_warm_ranks, warm_python, tmp_path, env=env)


@contextmanager
def job() -> Iterator[tuple[Any, int, int]]:
    """torch.distributed with its default group on our backend, the rank and the number of ranks."""
    import torch
    import torch.distributed as torch_dist

    import distdbg.torch_bridge

    torch.set_num_threads(1)
    distdbg.torch_bridge.register()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch_dist.init_process_group(
        "distdbg",
        init_method=os.environ["TORCH_STORE"],
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=30),
    )
    yield torch_dist, rank, size
    torch_dist.destroy_process_group()
    assert not distdbg.is_initialized()


# ------------------------------------------------------------------------------------------- ops


def run_ops() -> None:
    import torch

    with job() as (dist, rank, n):
        mine = torch.arange(4.0) + rank
        every = [torch.arange(4.0) + r for r in range(n)]
        total = sum(every)
        for async_op in (False, True):
            finish = (lambda work: work.wait()) if async_op else (lambda work: None)
            x = mine.clone()
            finish(dist.all_reduce(x, async_op=async_op))
            assert torch.equal(x, total)
            x = mine.clone()
            finish(dist.all_reduce(x, dist.ReduceOp.MAX, async_op=async_op))
            assert torch.equal(x, every[-1])
            x = mine.clone()
            finish(dist.broadcast(x, 1, async_op=async_op))
            assert torch.equal(x, every[1])
            x = mine.clone()
            finish(dist.reduce(x, 0, async_op=async_op))
            assert torch.equal(x, total if rank == 0 else mine)
            blocks = [torch.empty(4) for _ in range(n)]
            finish(dist.all_gather(blocks, mine, async_op=async_op))
            assert all(map(torch.equal, blocks, every))
            flat = torch.empty(4 * n)
            finish(dist.all_gather_into_tensor(flat, mine, async_op=async_op))
            assert torch.equal(flat, torch.cat(every))
            own = torch.empty(4)
            finish(dist.reduce_scatter_tensor(own, flat, async_op=async_op))
            assert torch.equal(own, n * mine)
            finish(dist.reduce_scatter(own, every, async_op=async_op))
            assert torch.equal(own, n * mine)
            wanted = [torch.empty(4) for _ in range(n)] if rank == 0 else None
            finish(dist.gather(mine, wanted, 0, async_op=async_op))
            assert wanted is None or all(map(torch.equal, wanted, every))
            finish(dist.scatter(own, every if rank == 0 else None, 0, async_op=async_op))
            assert torch.equal(own, mine)
            column = torch.full((n,), float(rank))
            got = torch.empty(n)
            finish(dist.all_to_all_single(got, column, async_op=async_op))
            assert torch.equal(got, torch.arange(float(n)))
            parts = [torch.empty(4) for _ in range(n)]
            finish(dist.all_to_all(parts, [mine] * n, async_op=async_op))
            assert all(map(torch.equal, parts, every))
            finish(dist.barrier(async_op=async_op))
        splits = torch.empty(sum(range(1, n + 1)))
        counts = list(range(1, n + 1))
        dist.all_to_all_single(
            splits, torch.full((n * (rank + 1),), float(rank)), counts, [rank + 1] * n
        )
        assert splits.tolist() == [float(r) for r in range(n) for _ in range(r + 1)]
        for dtype in (torch.bfloat16, torch.uint8, torch.complex64, torch.int64, torch.bool):
            x = torch.ones(3, dtype=dtype)
            dist.all_reduce(x)
            assert torch.equal(x, torch.ones(3, dtype=dtype) * (1 if dtype is torch.bool else n)), (
                dtype
            )
        x = torch.ones(2)
        dist.all_reduce(x, dist._make_nccl_premul_sum(2.0))
        assert x.tolist() == [2.0 * n] * 2
        sparse = torch.sparse_coo_tensor(
            torch.tensor([[rank, n]]), torch.tensor([1.0, 2.0]), (n + 1,), check_invariants=True
        )
        dist.all_reduce(sparse)
        assert sparse.to_dense().tolist() == [1.0] * n + [2.0 * n]

        with dist._coalescing_manager(async_ops=True) as block:
            some = [mine.clone(), mine.clone()]
            for x in some:
                dist.all_reduce(x)
        block.wait()
        assert all(torch.equal(x, total) for x in some)
        right, left = (rank + 1) % n, (rank - 1) % n
        with dist._coalescing_manager(device=torch.device("cpu")):
            dist.isend(mine, right)
            dist.irecv(own, left)
        assert torch.equal(own, every[left])

        objects: list[Any] = [None] * n
        dist.all_gather_object(objects, {"rank": rank})
        assert objects == [{"rank": r} for r in range(n)]
        objects = [rank, "x"]
        dist.broadcast_object_list(objects, 1)
        assert objects == [1, "x"]
        only: list[Any] = [None]
        dist.scatter_object_list(only, list(range(n)) if rank == 0 else None, 0)
        assert only == [rank]

        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, own, left)]
        )
        for work in works:
            work.wait()
        assert torch.equal(own, every[left])
        if rank == 0:
            assert sorted(dist.recv(own) for _ in range(1, n)) == list(range(1, n))
        else:
            dist.send(mine, 0)

        pair = dist.new_group([0, 1], group_desc="pair")
        if rank < 2:
            assert pair.group.label == "pair"
            dist.all_reduce(x := torch.ones(1), group=pair)
            assert x.item() == 2
            dist.destroy_process_group(pair)
        beside = dist.new_group(backend="gloo")
        dist.all_reduce(x := torch.ones(1), group=beside)
        assert x.item() == n
        world = dist.group.WORLD
        half = world.split_group([0, 1])
        assert (half is None) == (rank > 1)
        if half is not None:
            half.allreduce(x := torch.ones(1)).wait()
            assert x.item() == 2
        before = world._get_sequence_number_for_group()
        dist.barrier()
        assert world._get_sequence_number_for_group() == before + 1
        dist.monitored_barrier(timeout=timedelta(seconds=20))
        future = dist.all_reduce(x := torch.ones(1), async_op=True).get_future()
        assert future.then(lambda done: done.value()[0] * 2).wait().item() == 2 * n
        assert dist.get_backend() == "distdbg"


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3])
def test_every_function_of_torch_distributed_works(ranks: Ranks, n: int) -> None:
    ranks(run_ops, n)


# ---------------------------------------------------------------------------------------- errors


def caught(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def run_errors() -> None:
    import torch
    import torch.distributed._functional_collectives as functional
    from torch.nn.parallel import DistributedDataParallel

    with job() as (dist, rank, n):
        odd = torch.ones(3 + rank)
        error = caught(lambda: dist.all_reduce(odd))
        assert isinstance(error, MismatchError)
        assert f"at {Path(__file__).name}:" in str(error)  # not a line of torch
        assert isinstance(caught(dist.all_reduce(odd, async_op=True).wait), MismatchError)
        future = dist.all_reduce(odd, async_op=True).get_future()
        assert "MismatchError: all_reduce" in str(caught(future.wait))
        assert "all_reduce" in str(
            caught(lambda: functional.all_reduce(odd, "sum", dist.group.WORLD) + 1)
        )

        # What C++ waits for in a backward pass.
        model = torch.nn.Linear(2, 2)
        parallel = DistributedDataParallel(model)
        parallel.register_comm_hook(
            None, lambda state, bucket: dist.all_reduce(odd, async_op=True).get_future()
        )
        error = caught(lambda: parallel(torch.ones(1, 2)).sum().backward())
        assert "differs between ranks" in str(error)

        assert isinstance(caught(lambda: dist.all_reduce(torch.ones(1, device="meta"))), UsageError)
        group = dist.new_group()
        dist.destroy_process_group(group)
        assert "destroyed" in str(caught(lambda: group.allreduce(torch.ones(1)).wait()))
        assert isinstance(caught(lambda: distdbg.init_process_group("distdbg")), UsageError)
    with job() as (dist, rank, n):  # again
        dist.all_reduce(x := torch.ones(1))
        assert x.item() == n


def run_to_the_end_without_destroy() -> None:
    import torch

    context = job()
    dist, rank, _ = context.__enter__()
    dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()
    dist.irecv(torch.ones(1), 1 - rank).get_future()  # never completed
    globals()["kept"] = context


@pytest.mark.slow
def test_misuse_is_an_exception_and_no_crash(ranks: Ranks) -> None:
    ranks(run_errors, 2)


@pytest.mark.slow
def test_a_rank_ends_without_destroying_its_groups(ranks: Ranks) -> None:
    ranks(run_to_the_end_without_destroy, 2)


def leave_where_torch_tells_no_backend() -> None:
    from distdbg.torch_bridge.backend.creation import _destroy_process_group

    with job() as (dist, _, _):
        part = dist.new_group([0])
        _destroy_process_group(lambda group: None, part)  # as torch 2.6, for all but NCCL
        assert distdbg.is_initialized()
        _destroy_process_group(lambda group: None)
        assert not distdbg.is_initialized()


def test_groups_are_left_where_torch_does_not_tell_its_backends(ranks: Ranks) -> None:
    ranks(leave_where_torch_tells_no_backend, 1)


def test_a_work_that_cpp_alone_has_is_kept_where_torch_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from collections import OrderedDict

    from distdbg.torch_bridge.backend import work as module

    kept: OrderedDict[int, Any] = OrderedDict()
    monkeypatch.setattr(module, "_kept", kept)  # as up to torch 2.6
    monkeypatch.setattr(module, "_MAX_KEPT", 2)
    done = module.DoneWork()
    assert list(kept.values()) == [done]
    done.wait()
    assert not kept
    for _ in range(3):
        module.DoneWork()
    assert len(kept) == 2


def test_a_torch_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from distdbg import torch_bridge

    monkeypatch.setattr(torch, "__version__", "2.3.1+cpu")
    with pytest.raises(ConfigError, match=r"torch 2\.3\.1\+cpu is too old"):
        torch_bridge._make(None, None)
    assert not torch_bridge.is_old("2.4.0")
    assert not torch_bridge.is_old("3.0")


# -------------------------------------------------------------------------------------- training


def train(group: Any, rank: int, **options: Any) -> list[Any]:
    """The parameters after some steps of DistributedDataParallel on a group."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 4)
    )
    parallel = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.01, **options)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(rank)
    for _ in range(8):
        optimizer.zero_grad()
        parallel(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    return [each.detach() for each in model.parameters()]


def run_training() -> None:
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    with job() as (dist, rank, n):
        gloo = dist.new_group(backend="gloo")
        theirs = train(gloo, rank)
        for options in ({}, {"find_unused_parameters": True}, {"static_graph": True}):
            ours = train(None, rank, **options)
            # Of three and more ranks gloo adds each part of a tensor in another order.
            same = torch.equal if n == 2 else torch.allclose
            assert all(map(same, ours, theirs))
            for each in ours:
                first = each.clone()
                dist.broadcast(first, 0)
                assert torch.equal(each, first)
        for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
            model = DistributedDataParallel(torch.nn.Linear(4, 4))
            model.register_comm_hook(None, hook)
            model(torch.ones(2, 4)).sum().backward()
        model = DistributedDataParallel(torch.nn.Linear(4, 4))
        model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        model(torch.ones(2, 4)).sum().backward()
        model = DistributedDataParallel(torch.nn.Linear(4, 4))
        with model.join():
            for _ in range(1 + rank):
                model(torch.ones(2, 4)).sum().backward()


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 4])
def test_data_parallel_training_as_on_gloo(ranks: Ranks, n: int) -> None:
    ranks(run_training, n)


def run_sharded() -> None:
    import torch
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )
    from torch.nn.parallel import DistributedDataParallel

    with job() as (dist, _, n):
        mesh = init_device_mesh("cpu", (n,), mesh_dim_names=("dp",))
        whole = torch.arange(4.0 * n).view(2 * n, 2)
        spread = distribute_tensor(whole.clone(), mesh, [Shard(0)])
        assert torch.equal(spread.full_tensor(), whole)
        assert torch.equal(spread.sum().redistribute(mesh, [Replicate()]).to_local(), whole.sum())

        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
        x = torch.ones(2, 8)
        expected = model(x)
        split = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        assert torch.allclose(split(x), expected, atol=1e-5)

        if torch.__version__ >= (2, 7):  # older ones do not shard on a CPU, on gloo either
            from torch.distributed.fsdp import fully_shard

            sharded = fully_shard(torch.nn.Linear(8, 8), mesh=mesh)
            optimizer = torch.optim.Adam(sharded.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                sharded(x).sum().backward()
                optimizer.step()

        plain = torch.nn.Linear(8, 8)
        zero = ZeroRedundancyOptimizer(
            DistributedDataParallel(plain).parameters(), torch.optim.SGD, lr=0.1
        )
        plain(x).sum().backward()
        zero.step()

        folder = [tempfile.mkdtemp()]
        dist.broadcast_object_list(folder, 0)
        checkpoint.save({"w": torch.ones(3)}, checkpoint_id=folder[0])
        loaded = {"w": torch.zeros(3)}
        checkpoint.load(loaded, checkpoint_id=folder[0])
        assert loaded["w"].tolist() == [1.0] * 3

        def step(y: Any) -> Any:
            dist.all_reduce(y)
            return y * 2

        compiled = torch.compile(step, backend="aot_eager")
        assert compiled(torch.ones(2)).tolist() == [2.0 * n] * 2


@pytest.mark.slow
def test_sharded_training_and_compiled_functions(ranks: Ranks) -> None:
    ranks(run_sharded, 2)
