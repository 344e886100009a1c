"""Forks a rank for each line of stdin; test_record_kills.py kills it at a random moment.

A line is the folder of the run. The answer is the rank's pid, and "gone" when it was killed. The rank
writes the number of each step that is over, 8 bytes, into the pipe whose descriptor is argv[1]. Modules are
loaded once, before the fork, so that 200 ranks take seconds.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import numpy as np

import distdbg as dist
import distdbg.check
import distdbg.record
import distdbg.runtime

#: What the steps do, in turn; each leaves one event in the record.
STEPS = ("all_reduce", "barrier", "broadcast", "mark", "all_gather_into_tensor")


def be_a_rank(folder: str, report: int) -> None:
    os.environ["DISTDBG_RUN_DIR"] = folder
    os.environ["DISTDBG_RECORD_OPS"] = "16"
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    ones = np.ones(8, dtype=np.float32)
    # Nobody sends this: it is in flight for ever, and soon older than the ring.
    waiting = dist.irecv(np.empty(4), src=0, tag=99)
    calls = {
        "all_reduce": lambda: dist.all_reduce(ones),
        "barrier": dist.barrier,
        "broadcast": lambda: dist.broadcast(ones, src=0),
        "mark": lambda: dist.mark("step"),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(
            np.empty(8, np.float32), ones
        ),
    }
    step = 0
    while True:
        os.write(report, step.to_bytes(8, "little"))
        calls[STEPS[step % len(STEPS)]]()
        step += 1
        assert not waiting.is_completed()


def load_modules() -> None:
    """Import what a rank imports when it begins, so that no fork does it again."""
    for package in (dist.runtime, dist.check, dist.record):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)


def main() -> None:
    report = int(sys.argv[1])
    load_modules()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                be_a_rank(line.strip(), report)
            finally:
                os._exit(1)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print("gone" if os.WIFSIGNALED(status) else f"ended with {status}", flush=True)


if __name__ == "__main__":
    main()
