"""Gradients of a nested model are averaged in buckets, some passes are accumulated, and a branch that is
sometimes not used is allowed.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent", "torch": False}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    rng = np.random.default_rng(rank)
    model = {
        "layers": [{"weight": rng.normal(size=(16, 16)).astype(np.float32)} for _ in range(3)],
        "scale": np.ones(16),
        "branch": np.zeros(4, np.float32),
    }
    reducer = dist.GradientReducer(model, find_unused_parameters=True, bucket_cap_mb=0.001)
    for step in range(4):
        gradients = {
            "layers": [{"weight": np.full((16, 16), rank, np.float32)} for _ in range(3)],
            "scale": np.full(16, float(rank)),
            "branch": np.full(4, 3, np.float32) if rank == 0 and step == 1 else None,
        }
        if step == 2:
            with reducer.no_sync():
                reducer.reduce(gradients)
        averages = reducer.reduce(gradients)
        factor = 2 if step == 2 else 1
        assert np.all(averages["layers"][1]["weight"] == factor * (size - 1) / 2)
        assert np.all(averages["scale"] == factor * (size - 1) / 2)
        if step == 1:
            assert np.all(averages["branch"] == 1)
    dist.assert_same(model["layers"][0]["weight"])
    dist.destroy_process_group()


main()
