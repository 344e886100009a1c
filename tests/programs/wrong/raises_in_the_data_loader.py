"""An exception in rank 2's data loader ends it; the others wait in the reduction of that step."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "RankLeft", 1: "RankLeft", 2: "ValueError"},
    "op": "all_reduce",
    "odd": [2],
    "says": ["rank 2", "left", "all_reduce #3"],
}


def batches(rank):
    for index in range(5):
        if (rank, index) == (2, 2):
            raise ValueError("image 4711 is truncated")
        yield np.ones(4, np.float32)


def main():
    dist.init_process_group("gloo")
    for batch in batches(dist.get_rank()):
        dist.all_reduce(batch)
    dist.destroy_process_group()


main()
