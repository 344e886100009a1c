"""The state of a sharded model is gathered inside `if rank == 0`: the others are in the barrier
behind it.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "MismatchError",
    "says": ["#1", "all_gather", "barrier", "rank 0", "rank 1"],
}


class Sharded:
    def __init__(self):
        self.shard = np.ones(4, np.float32)

    def state(self):
        whole = np.zeros(4 * dist.get_world_size(), np.float32)
        dist.all_gather_into_tensor(whole, self.shard)  # <- rank 0
        return whole


def main():
    dist.init_process_group("gloo")
    model = Sharded()
    if dist.get_rank() == 0:
        model.state()
    dist.barrier()  # <- rank 1
    dist.destroy_process_group()


main()
