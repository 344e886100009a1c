"""`python -m benchmarks.ddp`: a training step under our DistributedDataParallel beside torch's over gloo.

All ways run in one job: each rank has a group of torch's and one of ours, and both train the same models,
pairs of steps in turn, so a busy machine disturbs them alike. The table has the median and the 10th
percentile of step times and the CPU time of a step, on rank 0; `ratio` is the median of ours by torch's over
the pairs, which a busy machine changes least; and by how much the parameters differ in the end, where they
do: the largest difference of a number by the largest number of its tensor. On 2 ranks there is none; on more
gloo adds up in another order (docs/how-to/run-torch-on-distdbg.md). There is one job for each level. Where
torch does not survive its own level (asynchronous ops of gloo at DETAIL), torch is measured at INFO beside
ours at that level.

    model        parameters
    mlp          14 tensors, 1.8 MiB: many small gradients
    convolution  10 tensors, 4.7 MiB
    transformer  52 tensors, 13 MiB
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.job import measured_by_rank_0
from tests.support.ports import free_port

LEVELS = ("OFF", "INFO", "DETAIL")
LIMIT_S = 240


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ddp", description=__doc__)
    parser.add_argument("--ranks", default="2", help="world sizes")
    parser.add_argument("--models", default="mlp,convolution,transformer")
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--blocks", type=int, default=40, help="of 2 steps each, for each way")
    parser.add_argument("--rank", metavar="MODEL", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.rank:
        run_rank(args.rank, args.blocks)
        return 0
    print(
        f"{'ranks':>5}  {'model':12} {'level':7} {'way':12} {'median':>10} {'p10':>10} {'CPU':>10} "
        f"{'ratio':>6}"
    )
    for size in map(int, args.ranks.split(",")):
        for model in args.models.split(","):
            for level in args.levels.split(","):
                for way, found in measure_level(model, level, size, args.blocks).items():
                    differs = f"   differs by {found['differs']:.0e}" if found["differs"] else ""
                    print(
                        f"{size:5}  {model:12} {level:7} {way:12} {found['median'] * 1e3:7.2f} ms "
                        f"{found['p10'] * 1e3:7.2f} ms {found['cpu'] * 1e3:7.2f} ms "
                        f"{found['ratio']:6.2f}"
                        f"{differs}",
                        flush=True,
                    )
    return 0


def measure_level(model: str, level: str, size: int, blocks: int) -> dict[str, Any]:
    """Both at this level, or torch at a lower one."""
    found = measure(model, level, level, size, blocks)
    if found is None:
        print(f"{size:5}  {model:12} {level:7} torch gloo   died at its own level", flush=True)
        found = measure(model, level, "INFO", size, blocks)
    if found is None:
        raise SystemExit(f"a rank of {model} at {level} died")
    return found


def measure(
    model: str, level: str, torch_level: str, size: int, blocks: int
) -> dict[str, Any] | None:
    """What rank 0 measured; None where a rank died."""
    variables = {
        "TORCH_PORT": str(free_port()),
        "TORCH_DISTRIBUTED_DEBUG": torch_level,
        "DISTDBG_DEBUG": level.lower(),
    }
    command = [sys.executable, "-m", "benchmarks.ddp", "--rank", model, "--blocks", str(blocks)]
    found: dict[str, Any] | None = measured_by_rank_0(command, size, variables, LIMIT_S)
    return found


def run_rank(name: str, blocks: int) -> None:
    import torch
    import torch.distributed as torch_dist

    import distdbg as dist

    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch_dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{os.environ['TORCH_PORT']}",
        rank=rank,
        world_size=size,
    )
    dist.init_process_group()
    wrappers = {
        "distdbg": dist.DistributedDataParallel,
        "torch gloo": torch.nn.parallel.DistributedDataParallel,
    }
    make, batch = MODELS[name](torch)
    ways = {way: Trainer(torch, wrapper, make, batch) for way, wrapper in wrappers.items()}
    for trainer in ways.values():
        trainer.run(3)
    in_turn = list(ways.values())
    for _ in range(blocks):
        for trainer in in_turn:
            dist.barrier()
            trainer.measure(2)
        in_turn.reverse()
    first, other = ways["distdbg"], ways["torch gloo"]
    found = {
        way: {
            "median": statistics.median(trainer.times),
            "p10": statistics.quantiles(trainer.times, n=10)[0],
            "cpu": statistics.median(trainer.cpu),
            "ratio": statistics.median(
                mine / theirs for mine, theirs in zip(trainer.times, other.times, strict=True)
            ),
            "differs": max(
                ((mine - theirs).abs().max() / theirs.abs().max()).item()
                for mine, theirs in zip(
                    first.module.parameters(), trainer.module.parameters(), strict=True
                )
            ),
        }
        for way, trainer in ways.items()
    }
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()
    torch_dist.destroy_process_group()


class Trainer:
    """One model under one wrapper; all begin with the same values and see the same batches."""

    def __init__(self, torch: Any, wrapper: Any, make: Callable[[], Any], batch: Any) -> None:
        torch.manual_seed(0)
        self.module = make()
        self.model = wrapper(self.module, bucket_cap_mb=1)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.001, momentum=0.9)
        self.batch = batch
        self.times: list[float] = []
        self.cpu: list[float] = []

    def run(self, steps: int) -> None:
        """Train."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(self.batch).square().mean().backward()
            self.optimizer.step()

    def measure(self, steps: int) -> None:
        """Train, and note the time of a step."""
        begin, cpu = time.perf_counter(), time.process_time()
        self.run(steps)
        self.times.append((time.perf_counter() - begin) / steps)
        self.cpu.append((time.process_time() - cpu) / steps)


def make_mlp(torch: Any) -> tuple[Callable[[], Any], Any]:
    def make() -> Any:
        return torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(7)])

    return make, torch.randn(32, 256)


def make_convolution(torch: Any) -> tuple[Callable[[], Any], Any]:
    nn = torch.nn

    def make() -> Any:
        return nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(64 * 8 * 8, 256), nn.ReLU(), nn.Linear(256, 10),
        )  # fmt: skip

    return make, torch.randn(16, 3, 32, 32)


def make_transformer(torch: Any) -> tuple[Callable[[], Any], Any]:
    nn = torch.nn

    def make() -> Any:
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    return make, torch.randn(4, 32, 256)


MODELS = {"mlp": make_mlp, "convolution": make_convolution, "transformer": make_transformer}

if __name__ == "__main__":
    sys.exit(main())
