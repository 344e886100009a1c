"""The job destroys its groups and initializes again, as a notebook or a test suite does."""

import numpy as np

import distdbg as dist

# torch's ranks cannot meet again on the port of env:// at once
TRUTH = {"ranks": 2, "outcome": "silent", "torch": False}


def main():
    for _ in range(3):
        dist.init_process_group("gloo")
        total = np.ones(3, np.float32)
        dist.all_reduce(total)
        assert total.tolist() == [2.0] * 3
        dist.destroy_process_group()


main()
