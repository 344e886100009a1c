"""What torch's documentation shows of torch.distributed, as small programs of our own: one function each.

Each makes its groups, returns what it computed, and leaves. The backend is `BACKEND`; nothing else in here
knows that there is more than gloo.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

EXAMPLES: dict[str, Callable[[int, int], Any]] = {}


def example(function: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
    """Put it on the list."""
    EXAMPLES[function.__name__] = function
    return function


@contextmanager
def world(name: str) -> Any:
    """The default group, for the time of one example."""
    dist.init_process_group(
        os.environ["BACKEND"],
        init_method=f"file://{os.environ['TORCH_FILE']}.{name}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


def run_all() -> dict[str, str]:
    """Each example's result as JSON, or its error."""
    if os.environ["WAY"] in ("info", "detail"):
        from distdbg.torch_bridge.hook import install

        install()
    found = {}
    for name, function in EXAMPLES.items():
        torch.manual_seed(7)
        try:
            with world(name) as (rank, size):
                found[name] = json.dumps(function(rank, size))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def numbers(*tensors: Any) -> list[Any]:
    """Values that are equal only if all bits are."""
    return [tensor.detach().double().flatten().tolist() for tensor in tensors]


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 12), nn.ReLU(), nn.Linear(12, 5))


@example
def averaged_by_hand(rank: int, size: int) -> Any:
    """A training loop that averages its gradients itself."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((4, 10), float(rank + step))).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()
    return numbers(*model.parameters())


@example
def data_parallel(rank: int, size: int) -> Any:
    """DDP with Adam, then an evaluation that only reduces."""
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(perceptron())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.full((4, 10), float(rank - step))).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        loss = model(torch.ones(2, 10)).mean()
    dist.all_reduce(loss, op=dist.ReduceOp.AVG if size == 0 else dist.ReduceOp.SUM)
    return numbers(loss, *model.parameters())


@example
def data_parallel_checkpoint(rank: int, size: int) -> Any:
    """Rank 0 saves, all load, and go on."""
    from torch.nn.parallel import DistributedDataParallel

    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    model = DistributedDataParallel(perceptron())
    path = os.path.join(str(folder[0]), "model.pt")
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.load_state_dict(torch.load(path, weights_only=True))
    return numbers(*model.parameters())


@example
def gradient_hooks(rank: int, size: int) -> Any:
    """DDP with a hook of torch's, and with one that is written here."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    def halve(state, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / (2 * size))

    found = []
    for hook in (default_hooks.fp16_compress_hook, halve):
        model = DistributedDataParallel(perceptron())
        model.register_comm_hook(None, hook)
        model(torch.full((4, 10), float(rank))).square().mean().backward()
        found += numbers(*(parameter.grad for parameter in model.parameters()))
    return found


@example
def uneven_inputs(rank: int, size: int) -> Any:
    """Ranks with batches of different number, joined."""
    from torch.distributed.algorithms.join import Join
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(nn.Linear(4, 2))
    with Join([model]):
        for _ in range(2 + 2 * rank):
            model(torch.full((2, 4), float(rank))).sum().backward()
    return numbers(*(parameter.grad for parameter in model.parameters()))


@example
def sharded_optimizer(rank: int, size: int) -> Any:
    """ZeRO: each rank holds a part of the optimizer's state."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(perceptron())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((3, 10), float(rank + step))).square().mean().backward()
        optimizer.step()
    return numbers(*model.parameters())


@example
def model_averaging(rank: int, size: int) -> Any:
    """Local steps, and the average of all models every other step."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    averager = PeriodicModelAverager(period=2, warmup_steps=0)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.full((4, 10), float(rank + step))).square().mean().backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
    dist.barrier()
    return numbers(*model.parameters())


@example
def fully_sharded(rank: int, size: int) -> Any:
    """FSDP2: a unit for each layer and one for the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((2, 8), float(rank + step))).square().mean().backward()
        optimizer.step()
    return numbers(*(parameter.full_tensor() for parameter in model.parameters()))


@example
def tensor_parallel(rank: int, size: int) -> Any:
    """A perceptron whose first layer is cut by columns, the second by rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
    model = parallelize_module(perceptron(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    output = model(torch.ones(3, 10))
    output.square().mean().backward()
    return numbers(output, model[0].weight.grad.full_tensor())


@example
def distributed_tensors(rank: int, size: int) -> Any:
    """DTensor: shards, replicas, partial sums, and what turns one into another."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, ones

    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(24.0).view(4, 6)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    product = rows @ ones(6, 3, device_mesh=mesh, placements=[Replicate()])
    total = columns.sum().redistribute(mesh, [Replicate()])
    return numbers(columns.full_tensor(), product.full_tensor(), total.to_local())


@example
def sharded_checkpoint(rank: int, size: int) -> Any:
    """DCP: all ranks write their shards, and read them into another sharding."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    mesh = init_device_mesh("cpu", (size,))
    rows = distribute_tensor(torch.arange(16.0).view(4, 4), mesh, [Shard(0)])
    checkpoint.save({"weight": rows, "step": torch.tensor(3)}, checkpoint_id=str(folder[0]))
    state = {
        "weight": distribute_tensor(torch.zeros(4, 4), mesh, [Shard(1)]),
        "step": torch.tensor(0),
    }
    checkpoint.load(state, checkpoint_id=str(folder[0]))
    return numbers(state["weight"].full_tensor(), state["step"])


@example
def pipeline_by_messages(rank: int, size: int) -> Any:
    """Activations go round in one batch of messages per micro batch."""
    layer = nn.Linear(6, 6)
    found = []
    for micro in range(3):
        mine, received = layer(torch.full((2, 6), float(rank + micro))).detach(), torch.zeros(2, 6)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, mine, (rank + 1) % size),
                dist.P2POp(dist.irecv, received, (rank - 1) % size),
            ]
        )
        for work in works:
            work.wait()
        found.append(received)
    return numbers(*found)


@example
def pipeline_schedule(rank: int, size: int) -> Any:
    """torch's own stages and schedule."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    layer = nn.Linear(6, 6)
    stage = PipelineStage(layer, rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
    if rank == 0:
        schedule.step(torch.ones(4, 6))
    else:
        schedule.step(target=torch.zeros(4, 6))
    return numbers(layer.weight.grad)


@example
def objects(rank: int, size: int) -> Any:
    """Python objects, all ways."""
    everyone: list[Any] = [None] * size
    dist.all_gather_object(everyone, {"rank": rank})
    from_0 = [f"of {rank}"] * 2
    dist.broadcast_object_list(from_0, src=0)
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [[r, "part"] for r in range(size)] if rank == 0 else None, src=0)
    gathered: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(("from", rank), gathered, dst=0)
    message: list[Any] = ["hello", 3] if rank == 0 else [None, None]
    if rank == 0:
        dist.send_object_list(message, dst=1)
    elif rank == 1:
        dist.recv_object_list(message, src=0)
    return [everyone, from_0, mine, gathered, message]


@example
def collectives(rank: int, size: int) -> Any:
    """Each collective of tensors once."""
    x = torch.arange(4.0) + rank
    total, most, first = x.clone(), x.clone(), x.clone()
    dist.all_reduce(total)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    dist.broadcast(first, src=size - 1)
    parts = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(parts, x)
    flat = torch.zeros(4 * size)
    dist.all_gather_into_tensor(flat, x)
    to_0 = x.clone()
    dist.reduce(to_0, dst=0)
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * size) * (rank + 1))
    scattered = torch.zeros(4)
    dist.scatter(scattered, parts if rank == 1 else None, src=1)
    gathered = [torch.zeros(4) for _ in range(size)] if rank == 0 else None
    dist.gather(x, gathered, dst=0)
    exchanged = torch.zeros(rank + 1 + size - 1)
    inputs = torch.arange(float(size + rank))
    splits = [1] * (size - 1) + [1 + rank]
    wanted = [1] * size if rank < size - 1 else [1 + peer for peer in range(size)]
    exchanged = torch.zeros(sum(wanted))
    dist.all_to_all_single(exchanged, inputs, wanted, splits)
    dist.barrier()
    found = [total, most, first, *parts, flat, part, scattered, *(gathered or ()), exchanged]
    return numbers(*found, *([to_0] if rank == 0 else []))


@example
def asynchronous(rank: int, size: int) -> Any:
    """Works that are waited for late, and a future with a function behind it."""
    tensors = [torch.full((n + 1,), float(rank + n)) for n in range(3)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    return numbers(*tensors, future.then(lambda done: done.value()[0] * 10).wait())


@example
def functional(rank: int, size: int) -> Any:
    """Functional collectives, also in a compiled function."""
    import torch.distributed._functional_collectives as functional_collectives

    def both(x: Any) -> Any:
        total = functional_collectives.all_reduce(x, "sum", dist.group.WORLD)
        return functional_collectives.all_gather_tensor(total * 2, 0, dist.group.WORLD)

    compiled = torch.compile(both, backend="aot_eager")
    x = torch.ones(3) * (rank + 1)
    return numbers(both(x), compiled(x))


@example
def groups(rank: int, size: int) -> Any:
    """A group of some ranks, and one for each rank."""
    few = dist.new_group([0, 1])
    own, _ = dist.new_subgroups(group_size=1)
    x = torch.full((2,), float(rank + 1))
    if rank < 2:
        dist.all_reduce(x, group=few)
    dist.all_reduce(x, group=own)
    return [*numbers(x), dist.get_process_group_ranks(few)]


@example
def barrier_that_is_monitored(rank: int, size: int) -> Any:
    """All ranks come in time."""
    from datetime import timedelta

    dist.monitored_barrier(timeout=timedelta(seconds=30))
    return "passed"


def accelerated(rank: int, size: int) -> Any:
    """A training loop of Hugging Face's Accelerate."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset

    accelerator = Accelerator(cpu=True)
    x = torch.arange(48.0).view(12, 4) / 48
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=3)
    model: Any = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            losses.append(accelerator.gather(loss.detach()))
    return [accelerator.num_processes, *numbers(*losses, *model.parameters())]


if find_spec("accelerate"):
    example(accelerated)


def lightning(rank: int, size: int) -> Any:
    """A model under Lightning's Trainer, which wraps it in DDP itself."""
    import lightning.pytorch as pl
    from lightning.pytorch.plugins.environments import LightningEnvironment
    from lightning.pytorch.strategies import DDPStrategy
    from torch.utils.data import DataLoader, TensorDataset

    class Regression(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.seen = perceptron(), []

        def training_step(self, batch: Any, place: int) -> Any:
            loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
            self.log("loss", loss, sync_dist=True)
            self.seen.append(loss.detach())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    before = dict(os.environ)  # Lightning removes what it has read
    os.environ |= {"LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}  # as a launcher sets them
    x = torch.arange(120.0).view(12, 10) / 120
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=size,
        strategy=DDPStrategy(
            process_group_backend=os.environ["BACKEND"], cluster_environment=LightningEnvironment()
        ),
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Regression()
    trainer.fit(module, DataLoader(TensorDataset(x, x[:, :5]), batch_size=2))
    os.environ |= before
    assert trainer.world_size == size
    loss = trainer.callback_metrics["loss"]
    return [trainer.global_step, *numbers(loss, *module.seen, *module.parameters())]


if find_spec("lightning"):
    example(lightning)


@example
def stores(rank: int, size: int) -> Any:
    """A key-value store of one's own beside the group."""
    path = [tempfile.mktemp() if rank == 0 else None]
    dist.broadcast_object_list(path, src=0)
    store = dist.PrefixStore("mine", dist.FileStore(str(path[0]), size))
    store.set(f"rank{rank}", str(rank * rank))
    store.wait([f"rank{r}" for r in range(size)])
    count = store.add("count", 1)
    dist.barrier()
    return [store.get(f"rank{r}").decode() for r in range(size)] + [count <= size]
