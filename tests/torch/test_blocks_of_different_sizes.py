"""Lists of tensors of different sizes, which torch documents for all_gather and gloo refuses."""

from __future__ import annotations

from typing import Any

import pytest

import distdbg as dist
from tests.support.store_ranks import run_store_ranks

torch = pytest.importorskip("torch")

COUNTS = [3, 0, 5]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int64"])
def test_tensors_of_different_sizes_are_gathered_and_scattered(dtype: str) -> None:
    kind = getattr(torch, dtype)

    def run(rank: int) -> tuple[list[Any], Any]:
        blocks = [torch.zeros(count, dtype=kind) for count in COUNTS]
        dist.all_gather(blocks, torch.full((COUNTS[rank],), rank + 1, dtype=kind))
        part = torch.zeros(COUNTS[rank], dtype=kind)
        dist.reduce_scatter(part, blocks)
        return blocks, part

    for rank, (blocks, part) in enumerate(run_store_ranks(run, 3, backend="gloo")):
        for source, block in enumerate(blocks):
            assert block.tolist() == [source + 1] * COUNTS[source]
        assert part.tolist() == [3 * (rank + 1)] * COUNTS[rank]
