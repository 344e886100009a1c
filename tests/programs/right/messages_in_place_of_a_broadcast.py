"""A tree of messages, by objects and by arrays, under a barrier that everybody reaches at another
time.
"""

import distdbg as dist

TRUTH = {"ranks": 4, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = [{"step": 7, "names": ["a"] * 50}] if rank == 0 else [None]
    if rank == 0:
        dist.send_object_list(state, dst=2)
        dist.send_object_list(state, dst=1)
    elif rank == 3:
        dist.recv_object_list(state, src=2)
    else:
        dist.recv_object_list(state, src=0)
        if rank == 2:
            dist.send_object_list(state, dst=3)
    dist.barrier()
    assert state[0]["step"] == 7
    dist.destroy_process_group()


main()
