"""Ranks with different numbers of batches: those that have none left join, and the others train on.

    python examples/join.py              rank 0 has 3 batches, rank 1 has 4, rank 2 has 5
    python examples/join.py --without    the same without Join: an error that says who ran out, and when

The model is one number; each step adds the mean of what the ranks that still have batches found.
"""

from __future__ import annotations

import argparse

import numpy as np

import distdbg as dist

RANKS = 3


class Averaged(dist.Joinable):
    """A number that all ranks change alike."""

    def __init__(self) -> None:
        super().__init__()
        self.value = 0.0
        self.steps = 0

    def step(self, batch: np.ndarray) -> None:
        dist.Join.notify_join_context(self)  # first of all: this rank still has batches
        self.average(batch.mean(), 1.0)

    def average(self, found: float, weight: float) -> None:
        both = np.array([found, weight])
        dist.all_reduce(both)
        self.value += both[0] / both[1]
        self.steps += 1

    def join_hook(self, **kwargs: object) -> dist.JoinHook:
        return JoinedRank(self)

    @property
    def join_process_group(self) -> dist.ProcessGroup | None:
        return dist.group.WORLD


class JoinedRank(dist.JoinHook):
    """What a rank does that has no batches left: it makes the collectives of a step, and adds nothing."""

    def __init__(self, model: Averaged) -> None:
        self.model = model

    def main_hook(self) -> None:
        self.model.average(0.0, 0.0)

    def post_hook(self, is_last_joiner: bool) -> None:
        which = "one of the last" if is_last_joiner else "earlier than others"
        print(
            f"rank {dist.get_rank()} joined {which}, after {self.model.steps} steps of all\n",
            end="",  # the line and its end in one write: ranks print at the same moment
            flush=True,
        )


def train(with_join: bool) -> None:
    """What one rank does; every rank of the group calls it."""
    rank = dist.get_rank()
    model = Averaged()
    with dist.Join([model], enable=with_join):
        for batch in dist.batches([np.full(2, rank + 1.0)] * (3 + rank)):
            model.step(batch)
    values = [np.zeros(1) for _ in range(RANKS)]
    dist.all_gather(values, np.array([model.value]))
    if rank == 0:
        print(
            f"the model is {model.value:g}, and the same on all: {len({v[0] for v in values}) == 1}"
        )


def run_rank(rank: int, with_join: bool) -> None:
    dist.init_process_group("gloo")
    try:
        train(with_join)
    finally:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--without", action="store_true", help="train without Join")
    dist.spawn(run_rank, args=(not parser.parse_args().without,), nprocs=RANKS)


if __name__ == "__main__":
    main()
