"""Only rank 0 logs, but its log line gathers the losses of all ranks."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "odd": [0],
    "says": ["#2", "all_gather", "all_reduce", "rank 0", "ranks 1-2"],
}


def log(step, loss):
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, loss)  # <- odd
    return f"step {step}: {losses}"


def main():
    dist.init_process_group("gloo")
    for step in range(3):
        gradient = np.ones(4, np.float32)
        dist.all_reduce(gradient)  # <- others, previous
        if dist.get_rank() == 0:
            log(step, 0.5)
    dist.destroy_process_group()


main()
