"""An asynchronous reduction differs; the error comes out where its Work is waited for, and names
the call.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [0],
    "says": ["all_reduce #2", "float32[7]", "float32[8]"],
}


def start(gradients):
    return [dist.all_reduce(gradient, async_op=True) for gradient in gradients]  # <- all


def main():
    dist.init_process_group("gloo")
    length = 7 if dist.get_rank() == 0 else 8
    works = start([np.ones(2, np.float32), np.ones(length, np.float32)])
    for work in works:
        work.wait()
    dist.destroy_process_group()


main()
