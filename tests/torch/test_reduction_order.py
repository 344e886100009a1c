"""In which order an all_reduce adds up: ours by rank, gloo's along its ring; each to the last bit.

gloo cuts an array into one chunk for each rank. Chunk c starts at the rank before c and goes down the
ring, and c is the last to add: the order depends on where an element lies and how large the array is.
Ours is the order of the ranks for every element, whatever the size, the algorithm and the place.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from warm_ranks import run_warm_ranks

if TYPE_CHECKING:
    from warm_python import WarmPython

torch: Any = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

COUNTS = (1, 5, 240, 1001)
_ITEM = 4


def inputs(rank: int, count: int) -> Any:
    generator = torch.Generator().manual_seed(100 * rank + count)
    return torch.randn(count, generator=generator) * 10.0**rank


def add_up(backend: str) -> list[list[float]]:
    dist = torch.distributed
    dist.init_process_group(
        backend,
        init_method=f"file://{os.environ['TORCH_FILE']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    found = []
    for count in COUNTS:
        x = inputs(dist.get_rank(), count)
        dist.all_reduce(x)
        found.append(x.tolist())
    dist.destroy_process_group()
    return found


def added(order: list[int], parts: list[Any]) -> Any:
    total = parts[order[0]].clone()
    for rank in order[1:]:
        total += parts[rank]
    return total


def by_rank(count: int, size: int) -> list[float]:
    total: list[float] = added(list(range(size)), [inputs(r, count) for r in range(size)]).tolist()
    return total


def along_the_ring(count: int, size: int) -> list[float]:
    parts = [inputs(rank, count) for rank in range(size)]
    segments = 2 * size
    segment = -(-count * _ITEM // segments)
    segment = -(-segment // _ITEM)  # elements
    chunk = 2 * segment
    total = torch.empty(count)
    for c in range(size):
        place = slice(min(c * chunk, count), min((c + 1) * chunk, count))
        order = [(c - 1 - step) % size for step in range(size)]
        total[place] = added(order, [part[place] for part in parts])
    found: list[float] = total.tolist()
    return found


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(("backend", "expected"), [("distdbg", by_rank), ("gloo", along_the_ring)])
def test_a_sum_has_the_bits_of_its_order(
    backend: str, expected: Any, size: int, warm_python: WarmPython, tmp_path: Path
) -> None:
    env = {
        "TORCH_FILE": os.fspath(tmp_path / "torch-store"),
        "DISTDBG_RUN_DIR": os.fspath(tmp_path / "run"),
    }
    wanted = [expected(count, size) for count in COUNTS]
    for found in run_warm_ranks(warm_python, tmp_path, add_up, size, env=env, backend=backend):
        assert found == wanted


@pytest.mark.parametrize("size", [3, 4])
def test_the_two_orders_differ_in_last_bits_on_more_than_two_ranks(size: int) -> None:
    ours, theirs = by_rank(1001, size), along_the_ring(1001, size)
    assert ours != theirs
    assert torch.allclose(torch.tensor(ours), torch.tensor(theirs), rtol=1e-4, atol=1e-2)
    assert by_rank(1001, 2) == along_the_ring(1001, 2)
