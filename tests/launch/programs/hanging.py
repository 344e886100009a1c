"""Programs of two to four ranks: some wait for each other, for one that is busy, for one that is gone.

hanging.py KIND      says "blocked <monotonic s>" before a rank enters what it may not leave,
                     "raised <monotonic s> <type>: <words>" when it leaves it by an error
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import distdbg as dist

x = np.ones(4)
rank = 0


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def blocked() -> None:
    say("blocked", time.monotonic(), rank)


def cycle() -> None:
    """Two wait for each other, the others for them."""
    blocked()
    if rank < 2:
        dist.recv(x, src=1 - rank)
    dist.barrier()


def ring() -> None:
    """All wait for their neighbours."""
    blocked()
    dist.recv(x, src=(rank + 1) % dist.get_world_size())


def knot() -> None:
    """All but the last wait for anybody, and it has left."""
    blocked()
    if rank < dist.get_world_size() - 1:
        dist.recv(x)


def three() -> None:
    """A cycle of three, and one that waits for them."""
    blocked()
    if rank < 3:
        dist.recv(x, src=(rank + 1) % 3)
    dist.barrier()


def against() -> None:
    """One is in a collective, one waits for its message."""
    blocked()
    if rank == 1:
        dist.recv(x, src=0)
    dist.barrier()


def works() -> None:
    """Two wait for ops that they had begun before: each has what the other needs behind it."""
    work = dist.irecv(x, src=1 - rank) if rank < 2 else None
    blocked()
    if work is not None:
        work.wait()
        dist.send(x, dst=1 - rank)
    dist.barrier()


def some() -> None:
    """Two wait for each other while the others compute."""
    blocked()
    if rank < 2:
        dist.recv(x, src=1 - rank)
    pair = 5 - rank
    while True:
        if rank == 2:
            dist.send(x, dst=pair)
        else:
            dist.recv(x, src=pair)
        time.sleep(0.01)  # the work of a step


def way_out() -> None:
    """A recv from any rank, one of which is only late."""
    if rank == 0:
        dist.recv(x)
    elif rank == 1:
        dist.recv(x, src=0)
    elif rank == 2:
        time.sleep(1.0)  # its own work
        dist.send(x, dst=0)
    if rank == 0:
        dist.send(x, dst=1)
    dist.barrier()


def checkpoint() -> None:
    """One saves while the others wait."""
    for _ in range(2):
        if rank == 0:
            time.sleep(1.5)  # it writes
        dist.barrier()


def stop() -> None:
    """One is stopped, and continued by the test."""
    blocked()
    if rank == 3:
        say("pid", os.getpid())
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.barrier()
    go, until = Path(os.environ["DISTDBG_RUN_DIR"]) / "go", time.monotonic() + 300
    while not go.exists() and time.monotonic() < until:
        time.sleep(0.1)  # the rest of the program


def die() -> None:
    """One is killed while the others wait."""
    blocked()
    if rank == 3:
        time.sleep(0.5)  # the others wait by then
        say("dies", time.monotonic())
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def far() -> None:
    """One is killed; one waits in a group that has no part in it, for somebody who fails of it."""
    pair = dist.new_group([0, 1])
    blocked()
    if rank == 3:
        time.sleep(0.5)  # the others wait by then
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        dist.all_reduce(x, group=pair)
    try:
        dist.barrier()
    except dist.DistError:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        raise


def mismatch() -> None:
    """One calls something else."""
    blocked()
    if rank == 3:
        dist.all_reduce(np.ones(5))
    else:
        dist.all_reduce(x)


def leave() -> None:
    """One ends well and is still needed."""
    blocked()
    if rank == 0:
        dist.recv(x, src=3)
    if rank == 3:
        time.sleep(0.3)  # the other waits by then
        return
    dist.barrier()


KINDS: dict[str, Callable[[], None]] = {
    "cycle": cycle, "ring": ring, "knot": knot, "three": three, "against": against, "works": works,
    "some": some,
    "way_out": way_out, "checkpoint": checkpoint, "stop": stop, "die": die, "far": far, "mismatch": mismatch,
    "leave": leave,
}  # fmt: skip


def main() -> None:
    global rank
    dist.init_process_group()
    rank = dist.get_rank()
    for _ in range(3):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
    try:
        KINDS[sys.argv[1]]()
    except dist.DistError as error:
        say("raised", time.monotonic(), f"{type(error).__name__}: {error.what}")
        raise
    dist.destroy_process_group()
    say("done")


if __name__ == "__main__":
    main()
