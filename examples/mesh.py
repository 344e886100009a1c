"""A matrix product on four ranks, as a mesh of 2 x 2: one collective along the rows, one along the columns.

    python examples/mesh.py

Rank (i, j) has block (i, j) of both matrices. Blocks of the left one are gathered along a row of the mesh,
blocks of the right one along a column; then each rank has what its block of the product needs.
"""

from __future__ import annotations

import numpy as np

import distdbg as dist
from distdbg import functional as F

SIDE = 2
BLOCK = 8


def block_of(matrix: np.ndarray, row: int, column: int) -> np.ndarray:
    return matrix[row * BLOCK : (row + 1) * BLOCK, column * BLOCK : (column + 1) * BLOCK]


def multiply() -> None:
    """What one rank does; every rank of the job calls it."""
    mesh = dist.init_device_mesh("cpu", (SIDE, SIDE), mesh_dim_names=("row", "column"))
    place = mesh.get_coordinate()
    assert place is not None
    rng = np.random.default_rng(0)  # the same matrices everywhere, to check the result with
    left = rng.integers(0, 9, (SIDE * BLOCK, SIDE * BLOCK))
    right = rng.integers(0, 9, (SIDE * BLOCK, SIDE * BLOCK))

    # Along "column" are the ranks of one row of the mesh, which differ in their column.
    row_of_left = F.all_gather(block_of(left, *place), gather_dim=1, group=(mesh, "column"))
    column_of_right = F.all_gather(block_of(right, *place), gather_dim=0, group=(mesh, "row"))
    product = row_of_left @ column_of_right

    is_right = np.array(np.array_equal(product, block_of(left @ right, *place)))
    # A mesh of two dimensions is no group; _flatten() makes one of all its ranks.
    right_blocks = F.all_reduce(is_right.astype(np.int64), group=mesh._flatten())
    if dist.get_rank() == 0:
        print(f"{mesh}")
        for name, group in zip(mesh.mesh_dim_names or (), mesh.get_all_groups(), strict=True):
            print(f"along {name!r} rank 0 is with ranks {dist.get_process_group_ranks(group)}")
        print(f"{right_blocks} of {mesh.size()} blocks of the product are right")


def run_rank(rank: int) -> None:
    dist.init_process_group("gloo")
    multiply()
    dist.destroy_process_group()


if __name__ == "__main__":
    dist.spawn(run_rank, nprocs=SIDE * SIDE)
