"""`python -m benchmarks.torch_backend`: torch.distributed on our backend beside gloo, per op and DDP step.

Each way runs in fresh processes, round after round in turn; the table has medians over rounds of the median
of rank 0. gloo is also measured with TORCH_DISTRIBUTED_DEBUG=INFO and DETAIL, where it survives them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.job import measured_by_rank_0

WAYS = {
    "distdbg": ("distdbg", {}),
    "gloo": ("gloo", {"TORCH_DISTRIBUTED_DEBUG": "OFF"}),
    "gloo INFO": ("gloo", {"TORCH_DISTRIBUTED_DEBUG": "INFO"}),
    "gloo DETAIL": ("gloo", {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
}
LIMIT_S = 120


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_backend", description=__doc__)
    parser.add_argument("--ranks", default="2,4", help="world sizes")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes in each")
    parser.add_argument("--rank", nargs=2, metavar=("BACKEND", "CASE"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.rank:
        run_rank(*args.rank)
        return 0
    for size in map(int, args.ranks.split(",")):
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(args.rounds):
            for way in WAYS:
                for case in ("ops", "ddp"):
                    for name, value in measure(way, case, size).items():
                        found.setdefault((name, way), []).append(value)
        for name in dict.fromkeys(name for name, _ in found):
            for way in WAYS:
                values = found.get((name, way))
                text = "failed" if values is None else f"{statistics.median(values) * 1e6:10.1f} us"
                print(f"{size} ranks  {name:28} {way:12} {text}", flush=True)
    return 0


def measure(way: str, case: str, size: int) -> dict[str, float]:
    """What rank 0 measured; nothing where a rank failed."""
    backend, env = WAYS[way]
    command = [sys.executable, "-m", "benchmarks.torch_backend", "--rank", backend, case]
    return measured_by_rank_0(command, size, env, LIMIT_S, subprocess.DEVNULL) or {}


def run_rank(backend: str, case: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(backend)
    results = time_ops(dist, torch) if case == "ops" else {"DDP step": time_ddp(dist, torch)}
    if dist.get_rank() == 0:
        print(json.dumps(results), flush=True)
    dist.destroy_process_group()


def time_ops(dist: Any, torch: Any) -> dict[str, float]:
    small, large = torch.ones(2), torch.ones(1 << 18)
    ops: dict[str, Callable[[], object]] = {
        "all_reduce 8 B": lambda: dist.all_reduce(small),
        "all_reduce 8 B, async": lambda: dist.all_reduce(small, async_op=True).wait(),
        "all_reduce 8 B, future": lambda: dist.all_reduce(small, async_op=True).get_future().wait(),
        "all_reduce 1 MiB": lambda: dist.all_reduce(large),
        "barrier": dist.barrier,
    }
    return {name: time_one(dist, op) for name, op in ops.items()}


def time_one(dist: Any, op: Callable[[], object]) -> float:
    blocks = []
    for _ in range(7):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(50):
            op()
        blocks.append((time.perf_counter() - begin) / 50)
    return statistics.median(blocks)


def time_ddp(dist: Any, torch: Any) -> float:
    layers = [torch.nn.Linear(256, 256) for _ in range(7)]
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*layers), bucket_cap_mb=0.5
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batch, steps = torch.randn(32, 256), []
    for _ in range(60):
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        steps.append(time.perf_counter() - begin)
    return statistics.median(steps)


if __name__ == "__main__":
    sys.exit(main())
