"""Every rank gathers an object of its own: None, a text, a long list. Sizes differ by nature."""

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}

METRICS = [None, "diverged", list(range(5000))]


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    gathered = [None] * size
    dist.all_gather_object(gathered, METRICS[rank])
    assert gathered == METRICS
    config = [{"lr": 0.1}, "adam"] if rank == 1 else [None, None]
    dist.broadcast_object_list(config, src=1)
    assert config == [{"lr": 0.1}, "adam"]
    mine = [None]
    dist.scatter_object_list(mine, METRICS if rank == 2 else None, src=2)
    assert mine[0] == METRICS[rank]
    collected = [None] * size if rank == 0 else None
    dist.gather_object(METRICS[rank], collected, dst=0)
    assert rank != 0 or collected == METRICS
    dist.destroy_process_group()


main()
