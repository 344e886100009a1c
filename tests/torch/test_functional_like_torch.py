"""Functional collectives over torch tensors: gradcheck, and the gradients of torch.distributed.nn.functional.

One job of two ranks runs all of it; torch's own functions run in the same processes, on gloo.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")

from warm_ranks import run_warm_ranks

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


def job() -> dict[str, Any]:
    """What one rank does; '' for what is as it should be."""
    import warnings
    from datetime import timedelta

    import numpy as np
    import torch
    import torch.distributed as theirs
    import torch.distributed.nn.functional as N

    import distdbg as dist
    from distdbg import functional as F
    from distdbg.record.traceback_text import one_line

    warnings.simplefilter("ignore", FutureWarning)  # torch's, about its own functions
    torch.set_num_threads(1)
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    theirs.init_process_group(
        "gloo", init_method=f"file://{os.environ['TORCH_FILE']}", rank=rank, world_size=size,
        timeout=timedelta(seconds=30),
    )  # fmt: skip

    def made(seed: int, *shape: int) -> Any:
        generator = torch.Generator().manual_seed(10 * seed + rank)
        return torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True)

    found: dict[str, Any] = {}
    x = made(0, 4, 2)
    split = [1, 3]

    ops: dict[str, Any] = {
        "all_reduce": F.all_reduce,
        "all_reduce avg": lambda t: F.all_reduce(t, "avg"),
        "all_reduce premul": lambda t: F.all_reduce(t, dist.make_premul_sum(2.0)),
        "all_gather": F.all_gather,
        "all_gather 1": lambda t: F.all_gather(t, 1),
        "reduce_scatter": F.reduce_scatter,
        "reduce_scatter avg 1": lambda t: F.reduce_scatter(t, "avg", 1),
        "all_to_all": F.all_to_all,
        "all_to_all splits": lambda t: F.all_to_all(t, [split[rank]] * 2, split),
        "permute": lambda t: F.permute(t, [1, 0]),
        "broadcast": lambda t: F.broadcast(t, 1),
        "reduce": lambda t: F.reduce(t, 1),
        "all_gather_list": F.all_gather_list,
        "gather": lambda t: F.gather(t, 1),
        "scatter": lambda t: F.scatter([t[:2], t[2:]], 1),
        "reduce_scatter_list": lambda t: F.reduce_scatter_list([t[:2], t[2:]]),
        "all_to_all_list": lambda t: F.all_to_all_list([t[:2], t[2:]]),
        "all_reduce_coalesced": lambda t: F.all_reduce_coalesced([t, t * 2]),
        "all_gather coalesced": lambda t: F.all_gather_into_tensor_coalesced([t, t * 2]),
        "reduce_scatter coalesced": lambda t: F.reduce_scatter_tensor_coalesced([t, t * 2]),
        "async": lambda t: F.all_gather(t, 1, async_op=True).wait(),
    }  # fmt: skip
    for name, op in ops.items():
        found[f"gradcheck {name}"] = check_vector(torch, dist, op, made(1, 4, 2))

    # The same numbers and gradients as torch's.
    def both(name: str, ours: Any, others: Any, *inputs: Any) -> None:
        results = []
        for function in (ours, others):
            mine = [each.detach().clone().requires_grad_() for each in inputs]
            out = function(*mine)
            outs = out if isinstance(out, tuple) else (out,)
            sum(((at + 1.0) * (each**2)).sum() for at, each in enumerate(outs)).backward()
            results.append([*(each.detach() for each in outs), *(each.grad for each in mine)])
        for one, other in zip(*results, strict=True):
            if not torch.allclose(one, other):
                found[f"as torch {name}"] = f"{one.tolist()} {other.tolist()}"
        found.setdefault(f"as torch {name}", "")

    half, two = made(2, 2, 2), [made(3, 2, 2), made(4, 2, 2)]
    like = torch.empty(2, 2, dtype=torch.float64)
    both("all_reduce", F.all_reduce, N.all_reduce, x)
    both("all_gather_list", F.all_gather_list, N.all_gather, x)
    both("broadcast", lambda t: F.broadcast(t, 1), lambda t: N.broadcast(t, 1), x)
    both("gather", lambda t: F.gather(t, 1), lambda t: N.gather(t, 1), x)
    both("scatter", lambda *t: F.scatter(t, 1), lambda *t: N.scatter(t, 1), *two)
    both(
        "all_to_all", F.all_to_all,
        lambda t: N.all_to_all_single(torch.empty_like(t), t), x,
    )  # fmt: skip
    both(
        "all_to_all_list", lambda *t: F.all_to_all_list(t),
        lambda *t: N.all_to_all([torch.empty_like(each) for each in t], list(t)), *two,
    )  # fmt: skip
    both(
        "reduce_scatter_list", lambda *t: F.reduce_scatter_list(t),
        lambda *t: N.reduce_scatter(torch.empty_like(like), list(t)), *two,
    )  # fmt: skip

    # What is no gradient, and what is part of no graph.
    with torch.no_grad():
        found["no_grad"] = F.all_reduce(x).requires_grad
    found["integers"] = F.all_reduce(torch.tensor([rank])).tolist()
    found["bfloat16"] = F.all_gather(torch.tensor([[rank]], dtype=torch.bfloat16), 1).tolist()
    found["kept"] = torch.equal(x, made(0, 4, 2))
    try:
        F.all_reduce(x, "max").sum().backward()
    except dist.UsageError as error:
        found["max"] = str(error)

    # A gradient of a gradient.
    (first,) = torch.autograd.grad((F.all_reduce(half) ** 2).sum(), half, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), half)
    found["second"] = second.tolist()

    # One rank forgets its backward pass.
    loss = F.all_gather(x * (rank + 1)).sum()
    try:
        if rank:
            dist.barrier()
        else:
            loss.backward()
    except dist.MismatchError as error:
        found["forgotten"] = str(error)
    try:
        F.all_reduce_coalesced([np.ones(1, np.float32), torch.ones(1, requires_grad=True)])
    except dist.UsageError as error:
        found["mixed"] = str(error)

    # One rank is late for it.
    late = dist.new_group()
    loss = F.all_gather(x, group=late).sum()
    late.set_timeout(timedelta(seconds=0.5))
    if rank == 0:
        try:
            loss.backward()
        except dist.OpTimeout as error:
            found["late"] = f"{one_line(error)}\n{error}"
    dist.barrier()
    theirs.destroy_process_group()
    dist.destroy_process_group()
    return found


def check_vector(torch: Any, dist: Any, op: Any, x: Any) -> str:
    """The gradient of one number that depends on all outputs of all ranks, against differences."""
    rank, step = dist.get_rank(), 1e-6

    def number(given: Any) -> Any:
        out = op(given)
        outs = out if isinstance(out, tuple) else (out,)
        return sum(((rank + 1.0 + at) * each.sin()).sum() for at, each in enumerate(outs))

    def total(given: Any) -> float:
        with torch.no_grad():
            value = number(given).reshape(1)
            dist.all_reduce(value)
            return float(value)

    number(x).backward()
    with torch.no_grad():
        for whose in range(dist.get_world_size()):
            for at in range(x.numel()):
                values = []
                for sign in (1, -1):
                    moved = x.detach().clone()
                    if whose == rank:
                        moved.view(-1)[at] += sign * step
                    values.append(total(moved))
                expected = (values[0] - values[1]) / (2 * step)
                if whose == rank and abs(float(x.grad.view(-1)[at]) - expected) > 1e-6:
                    return f"element {at}: {float(x.grad.view(-1)[at])} is not {expected}"
    return ""


def test_gradients_are_right_and_those_of_torch(warm_python: WarmPython, tmp_path: Path) -> None:
    env = {"TORCH_FILE": os.fspath(tmp_path / "torch-store"), "OMP_NUM_THREADS": "1"}
    for rank, found in enumerate(run_warm_ranks(warm_python, tmp_path, job, 2, env=env)):
        checked = {name: text for name, text in found.items() if "gradcheck" in name}
        assert len(checked) == 21
        assert set(checked.values()) == {""}, checked
        alike = {name: text for name, text in found.items() if "as torch" in name}
        assert len(alike) == 8
        assert set(alike.values()) == {""}, alike
        assert found["no_grad"] is False
        assert found["integers"] == [1]
        assert found["bfloat16"] == [[0, 1]]
        assert found["kept"]
        assert found["max"].startswith("all_reduce: no gradient is defined for reduce op MAX")
        assert found["second"] == [[8.0, 8.0]] * 2
        assert "rank 0 called reduce_scatter (backward of all_gather at" in found["forgotten"], rank
        assert "all_reduce_coalesced: tensors[0] is a NumPy array" in found["mixed"]
        if rank == 0:
            first, *lines = found["late"].splitlines()
            assert re.match(r"OpTimeout at test_functional_like_torch.py:\d+: waited", first)
            assert re.search(
                r"this rank called reduce_scatter at test_functional_like_torch.py:\d+ \(job\) "
                r"\(backward of all_gather at test_functional_like_torch.py:\d+\)", lines[1],
            ), lines  # fmt: skip
        assert "hint: rank 1 ran no backward pass there" in found["forgotten"]
        assert found["forgotten"].count("test_functional_like_torch.py:") >= 3
