"""How long a wait stays awake before it sleeps in the kernel, from cores and ranks.

With a core for each rank, spinning is the fastest, but not for long: on a busy machine the rank we
wait for may need this very core. With more ranks than cores, yielding hands it the core, and
sleeping costs a wake-up. With many more, a yield goes round all the others before it comes back.
Measured on 2 idle cores, 8 B all_reduce: 2 ranks spinning 0.2 us; 4 ranks sleeping 17 us, spinning
first 9 us, yielding 3 us. Beside strangers that use the cores, yielding is bad; native code notices
their time slices and sleeps instead (native/core/futex.hpp).

A round of spinning takes 24 ns on that machine, and from 1 to 60 on others: how many rounds, and whether
yielding pays, is part of a machine's profile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from distdbg.runtime.tuning.profile import Profile


@dataclass(frozen=True, slots=True)
class WaitSteps:
    """Rounds of spinning, then nanoseconds of yielding, then sleep."""

    spins: int
    yield_ns: int


def cores_of_ranks(pids: Iterable[int]) -> int:
    """The cores that this rank and those of these processes use together; fewer where some of them share.

    mpirun and srun bind each rank to a core of its own, so that a rank's own say nothing of the others'.
    """
    bound_to = [os.sched_getaffinity(0)]
    for pid in set(pids) - {os.getpid()}:
        with suppress(OSError):  # of a process that is gone
            bound_to.append(os.sched_getaffinity(pid))
    crowded = [each for each in bound_to if sum(other <= each for other in bound_to) > len(each)]
    return min(map(len, crowded), default=len(set().union(*bound_to)))


def choose_patience(ranks: int, cores: int, profile: Profile) -> WaitSteps:
    """The policy for `ranks` ranks on a host that lets them use `cores` cores."""
    if ranks <= cores:
        return WaitSteps(spins=profile.spins, yield_ns=100_000)
    if ranks <= 8 * cores:
        return WaitSteps(spins=0, yield_ns=profile.yield_ns)
    return WaitSteps(spins=0, yield_ns=0)
