"""A data-parallel fit in NumPy: every rank has its share of the data, gradients are averaged.

    distdbg run --nproc-per-node 4 examples/fit.py                    four ranks fit a two-layer network
    distdbg run --nproc-per-node 4 examples/fit.py --wrong-rank 2     one has another hidden size
    python examples/fit.py                                            the same without a launcher

The network learns to tell the two arms of a spiral apart. `GradientReducer` compares the models of all
ranks, gives them the weights of rank 0 and averages their gradients, so all take the same steps and have the
same model; the last line proves it.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

import distdbg as dist

STEPS = 400
POINTS_PER_RANK = 4_000
BATCH = 500
HIDDEN = 128
LEARNING_RATE = 0.3


def spiral(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points of two interleaved arms, and which arm each is on."""
    arm = rng.integers(0, 2, count)
    turn = rng.uniform(0.25, 3.5, count)
    angle = np.pi * (turn + arm)
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1)
    points += rng.normal(0.0, 0.04, points.shape)
    return points.astype(np.float32), arm.astype(np.float32)[:, None]


class Network:
    """Two layers; its weights and its gradients are arrays by name."""

    def __init__(self, hidden: int, rng: np.random.Generator) -> None:
        self.weights = {
            "inner.weight": rng.normal(0.0, 1.5, (2, hidden)).astype(np.float32),
            "inner.bias": rng.normal(0.0, 1.5, hidden).astype(np.float32),
            "outer.weight": rng.normal(0.0, hidden**-0.5, (hidden, 1)).astype(np.float32),
            "outer.bias": np.zeros(1, np.float32),
        }

    def loss_and_gradients(
        self, points: np.ndarray, arms: np.ndarray
    ) -> tuple[float, dict[str, np.ndarray]]:
        inner_weight, inner_bias, outer_weight, outer_bias = self.weights.values()
        inner = np.tanh(points @ inner_weight + inner_bias)
        guess = 1.0 / (1.0 + np.exp(-np.clip(inner @ outer_weight + outer_bias, -30.0, 30.0)))
        loss = -np.mean(arms * np.log(guess + 1e-7) + (1.0 - arms) * np.log(1.0 - guess + 1e-7))
        outer_error = (guess - arms) / np.float32(len(points))
        inner_error = (outer_error @ outer_weight.T) * (1.0 - inner**2)
        gradients = {
            "inner.weight": points.T @ inner_error,
            "inner.bias": inner_error.sum(axis=0),
            "outer.weight": inner.T @ outer_error,
            "outer.bias": outer_error.sum(axis=0),
        }
        return float(loss), gradients


def fit(hidden: int) -> None:
    """What one rank does; every rank of the group calls it."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    rng = np.random.default_rng(rank)
    points, arms = spiral(POINTS_PER_RANK, rng)
    network = Network(hidden, rng)
    velocity = {name: np.zeros_like(weight) for name, weight in network.weights.items()}
    reducer = dist.GradientReducer(network.weights)

    started = time.monotonic()
    for step in range(STEPS + 1):
        batch = rng.integers(0, POINTS_PER_RANK, BATCH)
        loss, gradients = network.loss_and_gradients(points[batch], arms[batch])
        averages = reducer.reduce(gradients)
        for name, weight in network.weights.items():
            velocity[name] *= 0.9
            velocity[name] -= LEARNING_RATE * averages[name]
            weight += velocity[name]
        if step % 100 == 0:
            mean_loss = np.array([loss])
            dist.all_reduce(mean_loss, op=dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step:4d}   loss {mean_loss[0]:.4f}", flush=True)

    weight = network.weights["inner.weight"]
    everywhere = [np.empty_like(weight) for _ in range(world_size)]
    dist.all_gather(everywhere, weight)
    if rank == 0:
        same = all(np.array_equal(other, everywhere[0]) for other in everywhere)
        took_s = time.monotonic() - started
        print(f"{world_size} ranks, {STEPS:,} steps in {took_s:.1f} s; ", end="")
        print(f"weights are {'bitwise equal' if same else 'NOT equal'} on all ranks", flush=True)


def run_rank(rank: int, wrong_rank: int | None) -> None:
    """The life of one rank, from joining to leaving."""
    dist.init_process_group("gloo")
    try:
        fit(HIDDEN + 1 if rank == wrong_rank else HIDDEN)
    finally:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4, help="without a launcher")
    parser.add_argument("--wrong-rank", type=int, help="this rank makes a wider network")
    args = parser.parse_args()
    if "RANK" in os.environ:  # a launcher has started this rank, and others
        run_rank(int(os.environ["RANK"]), args.wrong_rank)
    else:
        dist.spawn(run_rank, args=(args.wrong_rank,), nprocs=args.ranks)


if __name__ == "__main__":
    main()
