"""Each rank sends to itself in every way that can end: begun before, in one batch, from a second thread."""

import threading

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent", "torch": False}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x, y = np.full(3, rank + 1.0), np.zeros(3)

    work = dist.isend(x, rank)
    dist.recv(y, rank)
    work.wait()
    assert y[0] == rank + 1

    work = dist.irecv(y, rank, tag=3)
    dist.send(x * 2, rank, tag=3)
    work.wait()
    assert y[0] == 2 * (rank + 1)

    ops = [dist.P2POp(dist.isend, x * 3, rank), dist.P2POp(dist.irecv, y, rank)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert y[0] == 3 * (rank + 1)

    receiver = threading.Thread(target=dist.recv, args=(y, rank), kwargs={"tag": 4})
    receiver.start()
    dist.send(x * 4, rank, tag=4)
    receiver.join()
    assert y[0] == 4 * (rank + 1)

    dist.all_reduce(y)  # nothing of it is left over
    assert y[0] == 12
    dist.destroy_process_group()


main()
