"""The order that torch.randperm gives for a seed, with and without torch: a run takes the same samples. Pure.

A Mersenne Twister of 32 bits, seeded by the lower half of the seed, and one swap for each place.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

from distdbg.errors import UsageError

#: From here on torch draws numbers of 64 bits.
_MOST: Final = (2**32 - 1) // 20


def permutation(count: int, seed: int) -> list[int]:
    """The numbers below `count`, shuffled."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "randperm"):  # the same, and faster
        generator = torch.Generator()
        generator.manual_seed(seed)
        order: list[int] = torch.randperm(count, generator=generator).tolist()
        return order
    return permutation_without_torch(count, seed)


def permutation_without_torch(count: int, seed: int) -> list[int]:
    """The same, by our own means. UsageError for more than 214 million numbers."""
    if count >= _MOST:
        raise UsageError(
            f"{count} samples are shuffled by torch alone; import it, or shuffle=False"
        )
    twister = np.random.RandomState(seed & 0xFFFFFFFF)
    state: Any = twister.get_state(legacy=False)
    bits = np.random.MT19937()
    bits.state = state
    draws = bits.random_raw(max(count - 1, 0)).astype(np.uint64)
    steps = (draws % np.arange(count, 1, -1, dtype=np.uint64)).tolist()
    order = list(range(count))
    for at, step in enumerate(steps):
        other = at + step
        order[at], order[other] = order[other], order[at]
    return order
