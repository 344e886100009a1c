"""Measure what this machine decides, and keep it for the user.

    python -m distdbg.runtime.tuning.tuner

`background` starts this when the ranks of a job have ended; `distdbg tune` calls `tune`. Of several at once
one measures.
"""

from __future__ import annotations

import fcntl
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from distdbg.native import Group
from distdbg.runtime.rendezvous.state_folder import make_private_folder, state_folders
from distdbg.runtime.tuning.background import LOCK
from distdbg.runtime.tuning.choose import choose_profile
from distdbg.runtime.tuning.current import is_off
from distdbg.runtime.tuning.machine_cpus import is_bound_to_one
from distdbg.runtime.tuning.profile_file import KeptProfile, Machine, read_kept, write_kept
from distdbg.runtime.tuning.ranks import Times, time_trials
from distdbg.runtime.tuning.trials import trials_for

#: What a calm machine's own affairs may take.
_CALM_CORES = 0.35


#: Together under half a second, with what it takes to begin and end; a trial that has begun is ended.
PAIR_S, CROWD_S = 0.22, 0.14
CROWD = 4


def tune(
    measure: Callable[[int, float], Times] | None = None,
    *,
    budget_s: tuple[float, float] = (PAIR_S, CROWD_S),
    only_if_calm: bool = False,
) -> KeptProfile:
    """Measure, choose and keep; what others disturbed as well, unless told otherwise.

    The caller must have no other threads.
    """
    began = time.monotonic()
    usage = _read_usage()
    machine = Machine.here()

    def run(ranks: int, budget_s: float) -> Times:
        return time_trials(ranks, trials_for(ranks, machine.cores), budget_s)

    measure = measure or run
    pairs, crowds = measure(2, budget_s[0]), measure(CROWD, budget_s[1])
    profile = choose_profile(pairs, crowds, Group.pause_ns())
    times = {
        f"{ranks} {trial}": {variant: min(each) for variant, each in of.items()}
        for ranks, found in ((2, pairs), (CROWD, crowds))
        for trial, of in found.items()
    }
    took_s = time.monotonic() - began
    others = _others_since(usage)
    at = time.strftime("%Y-%m-%d %H:%M")
    kept = KeptProfile(
        machine, profile, times, took_s, at, is_disturbed=is_disturbing(others, CROWD)
    )
    if only_if_calm and kept.is_disturbed:
        return kept
    return replace(kept, path=write_kept(kept))


def main() -> int:
    """Measure unless somebody does, or has; a process that is bound to one core of several cannot."""
    if is_off() or is_bound_to_one() or read_kept(Machine.here()) is not None:
        return 0
    with _turn() as is_ours:
        if is_ours and read_kept(Machine.here()) is None:
            os.nice(10)  # what disturbs it then is seen, and nothing is kept
            tune(only_if_calm=True)
    return 0


@contextmanager
def _turn() -> Iterator[bool]:
    """Whether nobody else of this user measures here now."""
    for folder in state_folders(os.environ):
        try:
            make_private_folder(folder)
            fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
            yield True
        finally:
            os.close(fd)
        return
    yield False  # there is no place to keep it either


@dataclass(frozen=True, slots=True)
class _CpuUsage:
    """Seconds of all cores so far: of everybody, and of this process and those it has waited for."""

    at_s: float
    everybody_s: float
    own_s: float


def _read_usage() -> _CpuUsage:
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
    return _CpuUsage(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), own_s)


def _others_since(before: _CpuUsage) -> float:
    """Cores that others have used since then."""
    now = _read_usage()
    took_s = max(now.at_s - before.at_s, 1e-3)
    used_s = (now.everybody_s - before.everybody_s) - (now.own_s - before.own_s)
    return max(0.0, used_s / took_s)


def is_disturbing(others: float, ranks: int, cores: int | None = None) -> bool:
    """Whether so many cores of others took something from so many ranks."""
    cores = cores or len(os.sched_getaffinity(0))  # those of a container, not of its host
    return others > max(_CALM_CORES, cores - ranks)


if __name__ == "__main__":
    sys.exit(main())
