"""The CPUs of this machine, or of its container, also in a process that is bound to one of them."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import cache


@cache
def machine_cpus() -> frozenset[int]:
    """All that the system would let this process use."""
    found = [os.sched_getaffinity(0)]

    def widen() -> None:
        # A thread has an affinity of its own, which ends with it. What a container may not use, the kernel
        # leaves out.
        with suppress(OSError):
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
            found.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=widen)
    thread.start()
    thread.join()
    return frozenset(found[-1])


def is_bound_to_one() -> bool:
    """Whether this process has one core of several: what two ranks take is not to be measured there."""
    return len(os.sched_getaffinity(0)) == 1 < len(machine_cpus())
