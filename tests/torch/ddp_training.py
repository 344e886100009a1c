"""What the ranks of test_data_parallel.py do: the same training under torch's wrapper and under ours."""

from __future__ import annotations

import copy
import hashlib
import io
import logging
import os
import pickle
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import distdbg as dist
from distdbg.runtime.parallel.hooks import allreduce_hook, deferred

Wrap = Callable[..., Any]


class Convolution(nn.Module):
    """Weights of several shapes, one in another memory order, and buffers of two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 8, 3).to(memory_format=torch.channels_last)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, images: Any) -> Any:
        """Classes of images of 16 x 16."""
        hidden = torch.max_pool2d(torch.relu(self.norm(self.conv1(images))), 2)
        hidden = torch.relu(self.conv2(hidden))[:, :, :4, :4]
        return self.head(hidden.flatten(1))


class Branches(nn.Module):
    """A trunk, and a branch that is left out where it is said."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(4, 4)
        self.branch = nn.Linear(4, 4)
        self.is_left_out = False

    def forward(self, inputs: Any) -> Any:
        """Outputs, as a program's own object has them."""
        hidden = self.trunk(inputs)
        return {"out": hidden if self.is_left_out else self.branch(hidden)}


def begin() -> tuple[int, int]:
    """Both groups: torch's over gloo, and ours."""
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch_dist.init_process_group(
        "gloo", init_method=f"file://{os.environ['TORCH_FILE']}", rank=rank, world_size=size
    )
    dist.init_process_group()
    return rank, size


def end() -> None:
    """Leave both."""
    dist.destroy_process_group()
    torch_dist.destroy_process_group()


def wrappers() -> dict[str, Wrap]:
    return {"torch": nn.parallel.DistributedDataParallel, "ours": dist.DistributedDataParallel}


def digest(tensors: Iterable[Any]) -> str:
    """Of all their bits."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def train(wrap: Wrap, rank: int, steps: int, **options: Any) -> dict[str, Any]:
    """Losses, and all bits in the end."""
    torch.manual_seed(rank)  # the values of rank 0 count
    model = wrap(Convolution(), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    chance = torch.Generator().manual_seed(100 + rank)
    losses = []
    for step in range(steps):
        images = torch.randn(8, 1, 16, 16, generator=chance)
        classes = torch.randint(0, 10, (8,), generator=chance)
        if step == 2:
            with model.no_sync():
                cross_entropy(model(images), classes).backward()
        loss = cross_entropy(model(images), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        losses.append(loss.item().hex())
        if step == 3:
            with torch.no_grad():
                model.eval()(images)
            model.train()
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    return {
        "losses": losses,
        "values": torch.cat([one.detach().flatten() for one in model.parameters()]).tolist(),
        "parameters": digest(model.parameters()),
        "bits": digest([*model.parameters(), *model.buffers(), *gradients]),
    }


def train_branches(wrap: Wrap, rank: int, **options: Any) -> list[Any]:
    """A branch that is not used on rank 1 in one pass, and nowhere in another."""
    torch.manual_seed(rank)
    model = wrap(Branches(), **options)
    found: list[Any] = []
    for step in range(5):
        is_static = options.get("static_graph", False)
        is_odd = (step, rank) in ((1, 1), (2, 0))  # the second time with a gradient from before
        model.module.is_left_out = is_static or step == 3 or is_odd
        for parameter in model.parameters():
            if step != 2:
                parameter.grad = None
        model(torch.full((2, 4), float(rank + step)))["out"].square().sum().backward()
        gradients = [one.grad for one in model.parameters()]
        found.append([None if one is None else one.flatten().tolist() for one in gradients])
    return found


#: Ways to make it, of which each must give the bits of torch's with the same options.
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "small buckets": {"bucket_cap_mb": 0.002},
    "views": {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.002},
    "static": {"static_graph": True},
    "list": {"bucket_cap_mb_list": [0.0005, 0.004]},
    "local buffers": {"broadcast_buffers": False},
}
BRANCHES: dict[str, dict[str, Any]] = {
    "unused": {"find_unused_parameters": True},
    "static": {"static_graph": True},
}


def compare(steps: int) -> dict[str, Any]:
    """Everything twice: under torch's and under ours."""
    rank, size = begin()
    logging.getLogger("distdbg.parallel").setLevel(logging.INFO)
    found: dict[str, Any] = {}
    for who, wrap in wrappers().items():
        for name, options in OPTIONS.items():
            if size == 2 or name == "default":
                found[f"{who} {name}"] = train(wrap, rank, steps, **options)
        if size == 2:
            for name, options in BRANCHES.items():
                found[f"{who} branches {name}"] = train_branches(wrap, rank, **options)
            found[f"{who} facts"] = facts(wrap)
            found[f"{who} halves"] = halves(wrap, rank)
            found[f"{who} passes"] = passes(wrap, rank)
            found[f"{who} copies"] = copies(wrap, rank)
            found[f"{who} twice"] = checkpointed_twice(wrap, rank)
    end()
    return found


def passes(wrap: Wrap, rank: int) -> dict[str, Any]:
    """Gradients where forward and backward passes do not simply alternate."""

    def made() -> tuple[Any, Any]:
        torch.manual_seed(0)
        model = wrap(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)))
        return model, torch.arange(8.0).view(2, 4).add(rank).div(8).requires_grad_()

    found = {}
    model, inputs = made()
    out = model(inputs).sum()
    with torch.no_grad():
        model(inputs)
    out.backward()
    found["no grad between"] = gradients_of(model)
    model, inputs = made()
    out = model(inputs).sum()
    with model.no_sync():
        more = model(inputs * 2).sum()
    (out + more).backward()
    found["no sync between"] = gradients_of(model)
    model, inputs = made()
    out = model(inputs).sum()
    (slope,) = torch.autograd.grad(out, inputs, create_graph=True)
    (out + slope.square().sum()).backward()
    found["penalty"] = gradients_of(model)
    model, inputs = made()
    model.requires_grad_(False)
    model(inputs).sum().backward()
    model.requires_grad_(True)
    if rank == 1:
        model(inputs)  # only backward passes count
    model(inputs).sum().backward()
    found["frozen, then forward twice on rank 1"] = gradients_of(model)
    torch.manual_seed(0)
    model = wrap(Heads(is_apart=True), bucket_cap_mb=1e-5)
    for step in range(3):
        model.zero_grad()
        for at, out in enumerate(model(inputs.detach())):
            if step == 2:
                out = out + out.detach()  # other values; the first output may be gone by now
            (out.square().sum() * (at + 1)).backward()
        found[f"each loss has its own part of the model, step {step}"] = gradients_of(model)
    return found


def copies(wrap: Wrap, rank: int) -> dict[str, Any]:
    """Gradients of copies and of what they are copies of; each has a reducer of its own."""
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)))
    inputs = torch.arange(8.0).view(2, 4).add(rank)
    model(inputs).sum().backward()
    file = io.BytesIO()
    torch.save(model, file)
    made = {
        "deepcopy": copy.deepcopy(model),
        "pickle": pickle.loads(pickle.dumps(model)),
        "saved": torch.load(io.BytesIO(file.getvalue()), weights_only=False),
    }
    found = {}
    for name, one in {**made, "model": model}.items():
        one.zero_grad()
        for _ in range(2):
            one(inputs).square().sum().backward()
        found[name] = gradients_of(one)
    return found


class CheckpointedTwice(nn.Module):
    """A layer that runs twice under torch's reentrant checkpoint, so its gradient comes in two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, inputs: Any) -> Any:
        hidden = inputs
        for _ in range(2):
            hidden = torch.tanh(checkpoint(self.layer, hidden, use_reentrant=True))
        return self.head(hidden)


def checkpointed_twice(wrap: Wrap, rank: int) -> list[Any]:
    """Gradients of three passes, of which the last ones begin with views of buckets."""
    found = []
    for is_view in (False, True):
        torch.manual_seed(0)
        model = wrap(CheckpointedTwice(), static_graph=True, gradient_as_bucket_view=is_view)
        inputs = torch.arange(8.0).view(2, 4).add(rank).div(8).requires_grad_()
        for step in range(3):
            model.zero_grad(set_to_none=step != 2)
            model(inputs).sum().backward()
            found.append(gradients_of(model))
    return found


def gradients_of(model: Any) -> list[Any]:
    return [one.grad.flatten().tolist() for one in model.parameters()]


def facts(wrap: Wrap) -> dict[str, Any]:
    """What it says of itself after three passes."""
    torch.manual_seed(0)
    model = wrap(Convolution(), bucket_cap_mb=0.002)
    for _ in range(3):
        model(torch.ones(2, 1, 16, 16)).sum().backward()
    found: dict[str, Any] = model._get_ddp_logging_data()
    return found


def halves(wrap: Wrap, rank: int) -> list[Any]:
    """Gradients of three dtypes, by a hook of torch's shape."""
    torch.manual_seed(0)
    parts = [nn.Linear(3, 3).to(dtype) for dtype in (torch.float64, torch.bfloat16, torch.float32)]

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(parts)

        def forward(self, inputs: Any) -> Any:
            return [part(inputs.to(part.weight.dtype)) for part in self.parts]

    model = wrap(Mixed())
    for _ in range(2):
        sum(one.double().sum() for one in model(torch.full((2, 3), float(rank)))).backward()
    return [one.grad.double().flatten().tolist() for one in model.parameters()]


# ----------------------------------------------------------------------------------- our own


def use_it() -> dict[str, Any]:
    """Hooks, errors that leave the group usable, and the join protocol; each in words or numbers."""
    torch.set_num_threads(1)
    dist.init_process_group()
    rank = dist.get_rank()
    found = {
        "hooks": hooks(rank),
        "errors": errors(rank),
        "join": join_uneven(rank),
        "skip": skip(rank),
        "turns": turns(rank),
        "parts": parts(rank),
        "plain skip": plain_skip(rank),
        "failing hook": failing_hook(rank),
    }
    dist.destroy_process_group()
    return found


def hooks(rank: int) -> list[float]:
    """What is left of the average under each hook."""
    found = []
    for kind in dist.DDPCommHookType:
        torch.manual_seed(0)
        model = dist.DistributedDataParallel(nn.Linear(16, 8, bias=False))
        if "POWER" in kind.name:
            kind.value(model=model, state=None, start_powerSGD_iter=2)
        else:
            kind.value(model=model, state=dist.group.WORLD)
        for _ in range(3):
            model.zero_grad()
            (model(torch.ones(1, 16)).sum() * (rank + 1)).backward()
        found.append(model.module.weight.grad[0, 0].item())
    model = dist.DistributedDataParallel(nn.Linear(4, 4, bias=False))
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    (model(torch.ones(1, 4)).sum() * (rank + 1)).backward()
    found.append(model.module.weight.grad[0, 0].item())

    def halve(state: Any, bucket: dist.GradBucket) -> Any:
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        assert work is not None
        future = work.get_future()
        assert isinstance(future, torch.futures.Future)
        return future.then(lambda ended: ended.value()[0] / 2)

    model = dist.DistributedDataParallel(nn.Linear(4, 4, bias=False))
    # A hook that was written for torch's own class.
    halve.__annotations__["bucket"] = torch_dist.GradBucket
    model.register_comm_hook(None, halve)
    (model(torch.ones(1, 4)).sum() * (rank + 1)).backward()
    found.append(model.module.weight.grad[0, 0].item())
    assert deferred.Later(lambda: 1).then(lambda done: done.value() + 1).wait() == 2
    return found


def first_line(function: Callable[[], Any]) -> str:
    """Of the error that it raises; '' without one."""
    try:
        function()
    except dist.DistError as error:
        return f"{type(error).__name__}: {error.what}"
    return ""


def errors(rank: int) -> dict[str, str]:
    """First lines."""
    ddp = dist.DistributedDataParallel
    found = {
        "width": first_line(lambda: ddp(nn.Linear(4, 5 if rank == 1 else 4))),
        "sparse": first_line(lambda: ddp(nn.Embedding(4, 4, sparse=True))),
        "nothing": first_line(lambda: ddp(nn.ReLU())),
        "mixed": first_line(lambda: ddp(nn.Linear(2, 2), mixed_precision=object())),
        "group": first_line(lambda: ddp(nn.Linear(2, 2), process_group=object())),
        "hook": first_line(lambda: ddp(nn.Linear(2, 2)).register_comm_hook(None, lambda x: x)),
    }

    def unlike(shape: int = 2, buffer: int = 2, has_gradient: bool = True) -> Any:
        model = nn.Linear(2, 2)
        model.extra = nn.Parameter(torch.zeros(shape), requires_grad=False)
        model.bias.requires_grad_(has_gradient)
        model.register_buffer("kept", torch.zeros(buffer))
        return model

    found["frozen"] = first_line(lambda: ddp(unlike(shape=3 if rank == 1 else 2)))
    found["buffer"] = first_line(lambda: ddp(unlike(buffer=3 if rank == 1 else 2)))
    found["requires"] = first_line(lambda: ddp(unlike(has_gradient=rank != 1)))
    with_hook = ddp(nn.Linear(2, 2))
    found["hooks"] = first_line(
        lambda: dist.register_ddp_comm_hook(
            dist.DDPCommHookType.NOOP if rank == 1 else dist.DDPCommHookType.ALLREDUCE, with_hook
        )
    )
    model = ddp(Branches())
    inputs = torch.ones(2, 4)
    model(inputs)["out"].sum().backward()
    model.module.is_left_out = rank == 1
    found["unused"] = first_line(lambda: model(inputs)["out"].sum().backward())
    model.module.is_left_out = True
    found["nowhere"] = first_line(lambda: model(inputs)["out"].sum().backward())
    model.module.is_left_out = False
    found["after"] = first_line(lambda: model(inputs)["out"].sum().backward())

    # Two forward passes for each backward pass are legal, as long as all ranks have them.
    def twice() -> None:
        (model(inputs)["out"] + model(inputs)["out"]).sum().backward()

    found["twice"] = first_line(twice) + first_line(twice)
    out = model(inputs)["out"].sum()
    out.backward(retain_graph=True)
    found["again"] = first_line(out.backward if rank == 1 else lambda: twice())
    found["twice more"] = first_line(twice)
    inner = ddp(CheckpointedTwice(), bucket_cap_mb=1e-5)
    inputs.requires_grad_()
    inner.module(inputs).sum().backward()
    found["nested"] = first_line(lambda: inner(inputs).sum().backward())
    found["pickle"] = first_line(
        lambda: pickle.dumps(ddp(nn.Linear(2, 2), process_group=dist.new_group()))
    )
    return found


def failing_hook(rank: int) -> tuple[list[str], list[Any]]:
    """A comm hook that raises on rank 1, at once and in its future; then gradients of a step after it."""
    model = dist.DistributedDataParallel(
        nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)), bucket_cap_mb=1e-5
    )
    calls = []

    def raises(ended: Any) -> Any:
        raise OSError("no disk")

    def hook(state: Any, bucket: dist.GradBucket) -> Any:
        calls.append(bucket.index())
        if rank == 1 and len(calls) == 10:  # step 3: one bucket in the first, then 6
            raise OSError("no disk")
        future = allreduce_hook(None, bucket)
        return future.then(raises) if rank == 1 and len(calls) == 12 else future

    model.register_comm_hook(None, hook)
    said = []
    for _ in range(5):
        model.zero_grad()
        try:
            model(torch.arange(8.0).view(2, 4).add(rank)).square().sum().backward()
            said.append("")
        except (OSError, dist.DistError) as error:
            said.append(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    return said, gradients_of(model)


class Heads(nn.Module):
    """Two outputs of one trunk; or of parts that have nothing in common."""

    def __init__(self, is_apart: bool = False) -> None:
        super().__init__()
        self.trunk = nn.Tanh() if is_apart else nn.Linear(4, 4)
        self.heads = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])

    def forward(self, inputs: Any) -> Any:
        hidden = self.trunk(inputs)
        return [head(hidden) for head in self.heads]


def turns(rank: int) -> list[tuple[Any, Any]]:
    """Several backward passes after one forward pass: gradients, and the averages that must come out."""
    found = []
    for is_whole in (True, False):
        torch.manual_seed(0)
        model = dist.DistributedDataParallel(Heads(), find_unused_parameters=not is_whole)
        alone = copy.deepcopy(model.module)
        inputs = torch.arange(8.0).view(2, 4)
        for _ in range(3):
            parts = [out.sum() for out in model(inputs + rank)]
            losses = [sum(parts), sum(parts)] if is_whole else parts
            for loss in losses:
                loss.backward(retain_graph=True)
            for each in range(dist.get_world_size()):
                summed = sum(out.sum() for out in alone(inputs + each))
                (summed * ((2 if is_whole else 1) / dist.get_world_size())).backward()
        pairs = zip(gradients_of(model), gradients_of(alone), strict=True)
        found += [(summed, expected) for summed, expected in pairs]
    return found


def parts(rank: int) -> dict[str, str]:
    """Backward passes that have only a part of the gradients: first lines, where there is an error."""
    model = dist.DistributedDataParallel(Heads(is_apart=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.arange(8.0).view(2, 4).add(rank)

    def step(*used: int, has_optimizer: bool = True) -> str:
        model.zero_grad()

        def go() -> None:
            outputs = model(inputs)
            for at in used:
                outputs[at].sum().backward()
            if has_optimizer:
                torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1).step()  # of no concern
                optimizer.step()

        return first_line(go)

    found = {
        "one by one": step(0, 1),
        "one only": step(0),
        "one only, no step": step(1, has_optimizer=False),
        "then": step(0, 1),
        "and again": step(1, 0),
        "another one on rank 1": step(*((0, 1) if rank == 1 else (1, 0))),
    }

    def both_then_one() -> None:
        outputs = model(inputs)
        (outputs[0] + outputs[1]).sum().backward(retain_graph=True)
        outputs[1].sum().backward()
        optimizer.step()

    found["both, then one"] = first_line(both_then_one)
    dist.assert_same(model.module.state_dict())
    return found


def plain_skip(rank: int) -> dict[str, str]:
    """Of a model without buffers: a backward pass that rank 1 skips; then what looks like it and is legal."""
    model = dist.DistributedDataParallel(nn.Linear(4, 1))
    inputs = torch.arange(8.0).view(2, 4).add(rank)

    def train(skipped: int = -1, more: int = 0) -> None:
        for step in range(4):
            loss = model(inputs).sum()
            for _ in range(more):  # all are used
                loss = loss + model(inputs).sum()
            if step != skipped:
                loss.backward()

    def evaluate() -> None:
        for is_training in (True, False):
            if rank == 0:
                model.train(is_training)
                for _ in range(3):
                    model(inputs).sum().item()
            model.train()
            train()

    return {
        "skipped": first_line(lambda: train(skipped=1 if rank == 1 else -1)),
        "skipped by all": first_line(lambda: train(skipped=2)),
        "evaluated": first_line(evaluate),
        "used": first_line(lambda: train(more=2 if rank == 1 else 0)),
    }


class RaisesOnce(torch.autograd.Function):
    """Its backward pass raises."""

    @staticmethod
    def forward(ctx: Any, inputs: Any) -> Any:
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        raise ValueError("no gradient")


def skip(rank: int) -> list[tuple[str, list[Any]]]:
    """Rank 1 skips a backward pass; raises in one. The error, and gradients of the steps after it."""
    found = []
    for part in (nn.BatchNorm1d(4), nn.Tanh()):
        is_raising = isinstance(part, nn.Tanh)
        model = dist.DistributedDataParallel(
            nn.Sequential(nn.Linear(4, 4), part, nn.Linear(4, 4), nn.Linear(4, 1)),
            bucket_cap_mb=1e-5,
        )
        inputs = torch.arange(8.0).view(2, 4).add(rank)

        def step(model: Any = model, inputs: Any = inputs) -> None:
            model.zero_grad()
            model(inputs).square().sum().backward()

        def go_wrong(
            step: Any = step,
            model: Any = model,
            inputs: Any = inputs,
            is_raising: bool = is_raising,
        ) -> None:
            if rank != 1:
                step()
            elif is_raising:
                model.module[1].register_forward_hook(lambda *given: RaisesOnce.apply(given[2]))
                with suppress(ValueError):
                    step()
                model.module[1] = nn.Tanh()
            else:
                model(inputs)
                step()

        step()
        step()
        said = first_line(go_wrong)
        after = []
        for _ in range(3):
            step()
            after.append(gradients_of(model))
        found.append((said, after))
    return found


def join_uneven(rank: int) -> list[Any]:
    """Rank 1 has one batch less; the gradients of the last step are divided by those that have one."""
    model = dist.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    assert isinstance(model, dist.Joinable)
    with model.join(divide_by_initial_world_size=False):
        for _ in range(2 if rank == 1 else 3):
            model.zero_grad()
            (model(torch.full((2, 4), 2.0)) * torch.tensor([[1.0], [3.0]])).sum().backward()
    dist.assert_same(model.module.state_dict())
    gradient = model.module[1].bias.grad
    return [] if rank == 1 else gradient.tolist()


def run_example() -> tuple[str, str]:
    """What examples/digits.py prints, and its error with a layer that one rank leaves out."""
    sys.path.insert(0, os.fspath(Path(__file__).parents[2] / "examples"))
    import digits  # type: ignore[import-not-found]  # a script

    dist.init_process_group()
    printed = io.StringIO()
    with redirect_stdout(printed):
        digits.train(1, None)
    said = first_line(lambda: digits.train(1, 2))
    dist.destroy_process_group()
    return printed.getvalue(), said


def leave_early() -> str:
    """Rank 1 has one batch less."""
    torch.set_num_threads(1)
    dist.init_process_group()
    rank = dist.get_rank()
    model = dist.DistributedDataParallel(nn.Linear(4, 4))
    said = ""
    for _ in range(1 if rank == 1 else 2):
        said = first_line(lambda: model(torch.ones(2, 4)).sum().backward())
    with suppress(dist.DistError):
        dist.destroy_process_group()
    return said
