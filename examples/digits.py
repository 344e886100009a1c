"""Data-parallel training of a torch network on pictures of digits, drawn here: nothing is downloaded.

    python examples/digits.py                     four ranks, two epochs, and how many digits are recognised
    python examples/digits.py --unused 2          rank 2 leaves a layer out in the third step
    DISTDBG_LOG_LEVEL=info python examples/digits.py     what DistributedDataParallel says of itself

`dist.DistributedDataParallel` takes the arguments of torch's. Gradients are averaged over all ranks while the
backward pass still runs.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import torch
from torch import nn

import distdbg as dist

PICTURES = 4_000
BATCH = 25
SIDE = 16
#: Ten pictures of 3 x 5 dots.
FONT = (
    "111101101101111", "010110010010111", "111001111100111", "111001111001111", "101101111001001",
    "111100111001111", "111100111101111", "111001010010010", "111101111101111", "111101111001111",
)  # fmt: skip


def draw(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Digits of twice the font's size somewhere in a picture, with noise; and which digits they are."""
    rng = np.random.default_rng(seed)
    font = np.array([[int(dot) for dot in digit] for digit in FONT], np.float32).reshape(10, 5, 3)
    digits = rng.integers(0, 10, count)
    pictures = rng.normal(0.0, 0.25, (count, 1, SIDE, SIDE)).astype(np.float32)
    tops, lefts = rng.integers(1, 5, count), rng.integers(3, 8, count)
    for picture, digit, top, left in zip(pictures, digits, tops, lefts, strict=True):
        picture[0, top : top + 10, left : left + 6] += font[digit].repeat(2, 0).repeat(2, 1)
    return torch.from_numpy(pictures), torch.from_numpy(digits)


class Network(nn.Module):
    """Two convolutions and two layers, of which the last but one may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.inner = nn.Linear(32 * (SIDE // 4) ** 2, 32 * (SIDE // 4) ** 2)
        self.outer = nn.Linear(32 * (SIDE // 4) ** 2, 10)
        self.is_short = False

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        hidden = torch.max_pool2d(torch.relu(self.norm(self.conv1(pictures))), 2)
        hidden = torch.max_pool2d(torch.relu(self.conv2(hidden)), 2).flatten(1)
        if not self.is_short:
            hidden = torch.relu(self.inner(hidden))
        return self.outer(hidden)


def train(epochs: int, unused: int | None) -> None:
    """What one rank does; every rank of the group calls it."""
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(rank)  # another network on each rank: all begin with that of rank 0
    pictures, digits = draw(PICTURES, seed=0)
    model = dist.DistributedDataParallel(Network(), bucket_cap_mb=0.25)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    sampler = dist.DistributedSampler(pictures)
    step = 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        order = torch.tensor(list(sampler))
        for batch in order.split(BATCH):
            step += 1
            model.module.is_short = rank == unused and step == 3
            loss = nn.functional.cross_entropy(model(pictures[batch]), digits[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                mean_loss = loss.detach().clone()
                dist.all_reduce(mean_loss, op=dist.ReduceOp.AVG)
                if rank == 0:
                    print(f"epoch {epoch}  step {step:3d}  loss {mean_loss.item():.4f}", flush=True)
    dist.assert_same(dict(model.module.named_parameters()), what="the model")
    if rank == 0:
        test_pictures, test_digits = draw(1_000, seed=1)
        model.eval()
        with torch.no_grad():
            found = model.module(test_pictures).argmax(1)
        share = (found == test_digits).float().mean().item()
        facts = model._get_ddp_logging_data()
        print(f"{dist.get_world_size()} ranks recognise {share:.1%} of 1,000 digits; ", end="")
        print(f"buckets of {facts['rebuilt_bucket_sizes']} bytes", flush=True)


def run_rank(rank: int, epochs: int, unused: int | None) -> None:
    """The life of one rank, from joining to leaving."""
    dist.init_process_group("gloo")
    try:
        train(epochs, unused)
    except dist.DistError as error:
        sys.stdout.write(f"rank {rank}: {type(error).__name__}: {error}\n")
        sys.stdout.flush()
        dist.barrier()  # such an error leaves the group usable: each rank has its say
        raise
    finally:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--unused", type=int, help="this rank leaves a layer out in the third step")
    args = parser.parse_args()
    dist.spawn(run_rank, args=(args.epochs, args.unused), nprocs=args.ranks)


if __name__ == "__main__":
    main()
