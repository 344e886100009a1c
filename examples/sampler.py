"""Every sample once per epoch, in another order each time: a DistributedSampler over all ranks.

    python examples/sampler.py              three ranks
    python examples/sampler.py --ranks 4    as many as you say

Each rank fits the mean of its share of the numbers; the shares of all ranks together are the data, whichever
way an epoch shuffles them.
"""

from __future__ import annotations

import argparse

import numpy as np

import distdbg as dist
from distdbg import functional as F

EPOCHS = 3
BATCH = 4
DATA = np.arange(24, dtype=np.float64)


def batches_of(indices: list[int]) -> list[np.ndarray]:
    return [DATA[indices[at : at + BATCH]] for at in range(0, len(indices), BATCH)]


def train() -> None:
    """What one rank does; every rank of the group calls it."""
    sampler = dist.DistributedSampler(DATA, shuffle=True, seed=0)
    mean = np.zeros(1)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # without it every epoch has the order of the first
        mine = list(sampler)
        for batch in dist.batches(batches_of(mine)):
            gradient = np.array([mean[0] - batch.mean()])
            mean -= 0.5 * F.all_reduce(gradient, "avg")
        everybody = F.all_gather(np.array(mine))
        if dist.get_rank() == 0:
            seen = len(set(everybody.tolist()))
            print(
                f"epoch {epoch}: rank 0 took {mine[:4]} ..., together they saw {seen} of {len(DATA)}"
            )
    if dist.get_rank() == 0:
        print(f"the mean is {DATA.mean():.1f}, the fit came to {mean[0]:.1f}")


def run_rank(rank: int) -> None:
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=3)
    dist.spawn(run_rank, nprocs=parser.parse_args().ranks)


if __name__ == "__main__":
    main()
