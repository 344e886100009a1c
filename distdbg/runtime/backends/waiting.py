"""How long a wait stays awake before it sleeps in the kernel, from cores and ranks.

With a core for each rank, spinning is the fastest. With more ranks than cores, spinning keeps the
rank we wait for from running: yielding hands it the core, and sleeping costs a wake-up.
Measured on 2 cores, 8 B all_reduce: 2 ranks spinning 0.2 us; 4 ranks sleeping 17 us, spinning
first 9 us, yielding 3 us. Yielding for long pays for large arrays too (64 MiB on 4 ranks: 36 ms
sleeping, 28 ms after 20 us of yielding, 20 ms after 100 us).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """Rounds of spinning, then nanoseconds of yielding, then sleep."""

    spins: int
    yield_ns: int


def choose_patience(ranks: int, cores: int) -> Patience:
    """The policy for `ranks` ranks on a host that lets them use `cores` cores."""
    if ranks <= cores:
        return Patience(spins=100, yield_ns=100_000)
    return Patience(spins=0, yield_ns=200_000)
