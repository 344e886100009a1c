"""DistributedSampler: each rank takes every n-th sample of one order that all ranks know."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sized
from typing import Any, Final

import numpy as np

from distdbg.errors import UsageError
from distdbg.runtime.api.integers import to_int
from distdbg.runtime.api.queries import get_rank, get_world_size

#: From here on torch draws numbers of 64 bits.
_LIMIT: Final = (2**32 - 1) // 20


class DistributedSampler:
    """The indices of the samples of this rank, as torch.utils.data.distributed.DistributedSampler gives them.

    For a DataLoader of torch, or any loop. The order depends on `seed` and set_epoch() alone, and is the same
    with and without torch. All ranks get equally many: the first samples are repeated at the end, or with
    `drop_last` the last ones are left out.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        size = get_world_size() if num_replicas is None else num_replicas
        number = get_rank() if rank is None else rank
        size = to_int("DistributedSampler", "num_replicas", size)
        number = to_int("DistributedSampler", "rank", number)
        if not 0 <= number < size:
            raise UsageError(f"DistributedSampler: rank {number} is not one of {size} ranks")
        self.dataset = dataset
        self.num_replicas = size
        self.rank = number
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = to_int("DistributedSampler", "seed", seed)
        count = len(dataset)
        if drop_last and count % size:
            self.num_samples = math.ceil((count - size) / size)
        else:
            self.num_samples = math.ceil(count / size)
        self.total_size = self.num_samples * size

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        order = permutation(count, self.seed + self.epoch) if self.shuffle else list(range(count))
        if self.drop_last:
            del order[self.total_size :]
        elif order:
            missing = self.total_size - len(order)
            order += (order * math.ceil(missing / len(order)))[:missing]
        if len(order) != self.total_size:
            raise UsageError(
                f"DistributedSampler: {len(order)} samples for {self.total_size} places: the dataset "
                f"has changed its length since the sampler was made"
            )
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        """How many samples this rank takes."""
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Shuffle in another way from here on; call it on all ranks before each epoch."""
        self.epoch = to_int("set_epoch", "epoch", epoch)

    def __repr__(self) -> str:
        return (
            f"<DistributedSampler rank {self.rank} of {self.num_replicas}, {self.num_samples} of "
            f"{len(self.dataset)} samples, epoch {self.epoch}>"
        )

    def __class_getitem__(cls, item: Any) -> type[DistributedSampler]:
        """As torch's, which is generic over the samples."""
        return cls


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
    if count >= _LIMIT:
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
