"""Three or more ranks meet twice; in between rank 2 fails in the way that the first argument names."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

import numpy as np

import distdbg as dist


def fail(kind: str) -> None:
    match kind:
        case "raise":
            raise ValueError("no data")
        case "exit":
            sys.exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segv":
            ctypes.string_at(1)
        case "abort":
            os.abort()
        case "memory":  # by rlimit: Python is told
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
            keep = [bytearray(1 << 26) for _ in range(64)]
            print(len(keep))
        case "hog":  # until the cgroup that the job is in has no more
            keep = [bytearray(b"x" * (1 << 24)) for _ in range(64)]
            print(len(keep))
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "gil":
            ctypes.PyDLL(None).sleep(600)
        case "loop":
            while True:
                pass
        case "lock":
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        case _:
            raise SystemExit(f"unknown kind {kind}")


def main() -> None:
    dist.init_process_group()
    values = np.ones(4)
    dist.all_reduce(values)
    if dist.get_rank() == 2:
        fail(sys.argv[1])
    dist.all_reduce(values)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
