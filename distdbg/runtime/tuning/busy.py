"""How many cores others use while something is measured: what says that a time is worth nothing."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass

#: What a calm machine's own affairs may take.
_CALM_CORES = 0.35


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """Seconds of all cores so far: of everybody, and of this process and those it has waited for."""

    at_s: float
    everybody_s: float
    own_s: float


def read_usage() -> CpuUsage:
    """Now; where the kernel tells nothing, nobody uses anything."""
    try:
        with open("/proc/stat") as file:
            words = file.readline().split()
        # user, nice, system; then irq, softirq and steal.
        ticks = sum(int(words[at]) for at in (1, 2, 3, 6, 7, 8))
    except (OSError, ValueError, IndexError):
        ticks = 0
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own_s = sum(each.ru_utime + each.ru_stime for each in own)
    return CpuUsage(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), own_s)


def others_since(before: CpuUsage) -> float:
    """Cores that others have used since then."""
    now = read_usage()
    took_s = max(now.at_s - before.at_s, 1e-3)
    used_s = (now.everybody_s - before.everybody_s) - (now.own_s - before.own_s)
    return max(0.0, used_s / took_s)


def is_disturbing(others: float, ranks: int, cores: int | None = None) -> bool:
    """Whether so many cores of others took something from so many ranks."""
    cores = cores or len(os.sched_getaffinity(0))  # those of a container, not of its host
    return others > max(_CALM_CORES, cores - ranks)
