"""What a rank of benchmarks/torch_steps.py trains, by name: a model of benchmarks/ddp.py, or another wrapper.

mlp, convolution, transformer   DDP
small                           DDP: 40 layers of 16 x 16, so a step is little else than its buckets
fsdp                            the transformer under FSDP2, a unit for each layer
tensor                          feed-forward blocks whose weights are DTensors: one by columns, one by rows
accelerate                      the transformer by Accelerate: DDP with its default buckets
pipeline                        a stage for each rank; 4 micro-batches go there and back by batch_isend_irecv
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from benchmarks.ddp import MODELS

#: All names.
TRAININGS: Final = (*MODELS, "small", "fsdp", "tensor", "accelerate", "pipeline")
#: How many parts of a batch are in the pipeline, and how wide its layers are.
_PARTS: Final = 4
_WIDTH: Final = 256
#: How many feed-forward blocks follow each other under tensor parallelism.
_BLOCKS: Final = 4


def make_step(torch: Any, dist: Any, name: str, bucket_mb: float) -> Callable[[], object]:
    """A function that does one step of that training; all ranks make it together."""
    torch.manual_seed(0)
    if name == "pipeline":
        return _make_pipeline(torch, dist)
    if name == "tensor":
        return _make_tensor_parallel(torch, dist)
    if name == "accelerate":
        return _make_accelerated(torch)
    make, batch = _make_small(torch) if name == "small" else _find(torch, name)
    model = make()
    if name == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket_mb)
    optimizer = _make_optimizer(torch, model)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def _find(torch: Any, name: str) -> tuple[Callable[[], Any], Any]:
    found: tuple[Callable[[], Any], Any] = MODELS["transformer" if name == "fsdp" else name](torch)
    return found


def _make_small(torch: Any) -> tuple[Callable[[], Any], Any]:
    def make() -> Any:
        layers = [torch.nn.Linear(16, 16, bias=False) for _ in range(40)]
        return torch.nn.Sequential(*layers)

    return make, torch.randn(4, 16)


def _make_optimizer(torch: Any, model: Any) -> Any:
    # The values stay as they are: tiny ones would take longer, in the job that has gone on longest.
    return torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)


def _make_tensor_parallel(torch: Any, dist: Any) -> Callable[[], object]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    blocks = []
    for _ in range(_BLOCKS):
        block = torch.nn.Sequential(
            torch.nn.Linear(_WIDTH, 4 * _WIDTH),
            torch.nn.ReLU(),
            torch.nn.Linear(4 * _WIDTH, _WIDTH),
        )
        blocks.append(
            parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        )
    model = torch.nn.Sequential(*blocks)
    optimizer = _make_optimizer(torch, model)
    batch = torch.randn(256, _WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def _make_accelerated(torch: Any) -> Callable[[], object]:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    make, batch = _find(torch, "transformer")
    model = make()
    model, optimizer = accelerator.prepare(model, _make_optimizer(torch, model))

    def step() -> None:
        optimizer.zero_grad()
        accelerator.backward(model(batch).square().mean())
        optimizer.step()

    return step


def _make_pipeline(torch: Any, dist: Any) -> Callable[[], object]:
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    stage = torch.nn.Sequential(*[torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(4)])
    optimizer = _make_optimizer(torch, stage)
    batch = torch.randn(_PARTS, 32, _WIDTH)

    def exchange(*ops: tuple[Any, Any, int]) -> None:
        for work in dist.batch_isend_irecv([dist.P2POp(*op) for op in ops]) if ops else ():
            work.wait()

    def step() -> None:
        optimizer.zero_grad()
        inputs, outputs = [], []
        for part in batch:
            given = part
            if rank:
                given = torch.empty_like(part)
                exchange((dist.irecv, given, rank - 1))
                given.requires_grad_()
            made = stage(given)
            inputs.append(given)
            outputs.append(made)
            if rank < last:
                exchange((dist.isend, made.detach(), rank + 1))
        for given, made in zip(inputs, outputs, strict=True):
            if rank == last:
                made.square().mean().backward()
            else:
                gradient = torch.empty_like(made)
                exchange((dist.irecv, gradient, rank + 1))
                made.backward(gradient)
            if rank:
                exchange((dist.isend, given.grad, rank - 1))
        optimizer.step()

    return step
