"""Every rank runs at another debug level; one that checks is enough for all."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [1],
    "says": ["all_reduce #2", "float32[4]", "float64[4]"],
}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    levels = [dist.DebugLevel.OFF, dist.DebugLevel.INFO, dist.DebugLevel.DETAIL]
    dist.set_debug_level(levels[rank])
    dist.barrier()
    weights = np.ones(4, np.float64 if rank == 1 else np.float32)
    dist.all_reduce(weights)  # <- all
    dist.destroy_process_group()


main()
