"""Measure what this machine decides, and keep it for the user.

    python -m distdbg.runtime.tuning.tuner

`background` starts this when the ranks of a job have ended; `distdbg tune` calls `tune`. Of several at once
one measures.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from distdbg.native import Group
from distdbg.runtime.rendezvous.state_folder import make_private_folder, state_folders
from distdbg.runtime.tuning.background import LOCK
from distdbg.runtime.tuning.busy import is_disturbing, others_since, read_usage
from distdbg.runtime.tuning.choose import choose_profile
from distdbg.runtime.tuning.current import is_off
from distdbg.runtime.tuning.kept import KeptProfile, Machine, read_kept, write_kept
from distdbg.runtime.tuning.ranks import Times, time_trials
from distdbg.runtime.tuning.trials import trials_for

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
    usage = read_usage()
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
    others = others_since(usage)
    at = time.strftime("%Y-%m-%d %H:%M")
    kept = KeptProfile(
        machine, profile, times, took_s, at, is_disturbed=is_disturbing(others, CROWD)
    )
    if only_if_calm and kept.is_disturbed:
        return kept
    return replace(kept, path=write_kept(kept))


def main() -> int:
    """Measure unless somebody does, or has."""
    if is_off() or read_kept(Machine.here()) is not None:
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


if __name__ == "__main__":
    sys.exit(main())
