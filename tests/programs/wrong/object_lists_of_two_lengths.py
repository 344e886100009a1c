"""Rank 0 broadcasts two settings, rank 1 expects three."""

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "broadcast",
    "odd": [1],
    "says": ["#1", "2 objects on ranks 0,2", "3 objects on rank 1"],
}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    settings = ["adam", 0.1] if rank == 0 else [None] * (3 if rank == 1 else 2)
    dist.broadcast_object_list(settings, src=0)  # <- all
    dist.destroy_process_group()


main()
