"""The shape of a mesh: which ranks lie along which dimension. Pure.

A mesh that was cut out of another one stands for several at once: all ranks of the whole are in one of its
blocks, and each rank sees its own. `ranks` therefore has one more axis than the mesh, the blocks, in front.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from distdbg.errors import UnknownDimError, UsageError

Ranks = npt.NDArray[np.int32]
#: Strides of one dimension; several where it was flattened from dimensions that are not neighbours.
Stride = int | tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MeshLayout:
    """The blocks of one mesh, its dimensions and their names."""

    ranks: Ranks
    """By block, then by the dimensions of the mesh."""
    names: tuple[str, ...] | None
    strides: tuple[Stride, ...]
    """By how many places of the whole mesh the neighbours along a dimension are apart."""

    @classmethod
    def whole(cls, ranks: Ranks, names: Sequence[str] | None) -> MeshLayout:
        """Return the layout of a mesh that is no part of another. UsageError for names that do not fit."""
        shape = ranks.shape
        checked = None if names is None else check_names(names, len(shape))
        strides = tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))
        return cls(ranks[None], checked, strides)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.ranks.shape[1:]

    def block_of(self, rank: int) -> Ranks:
        """The block that a rank is in; for a rank in none, the first."""
        hits = np.argwhere(self.ranks == rank)
        block: Ranks = self.ranks[int(hits[0][0]) if len(hits) else 0]
        return block

    def coordinate_of(self, rank: int) -> tuple[int, ...] | None:
        """Where a rank is in its block; None: in none."""
        hits = np.argwhere(self.ranks == rank)
        return tuple(int(at) for at in hits[0][1:]) if len(hits) else None

    def lines(self, dim: int) -> list[list[int]]:
        """The ranks of each line along a dimension, of all blocks."""
        moved = np.moveaxis(self.ranks, dim + 1, -1)
        return [[int(rank) for rank in line] for line in moved.reshape(-1, self.shape[dim])]

    def dim_of(self, dim: int | str) -> int:
        """The number of a dimension. UnknownDimError when there is none such."""
        if isinstance(dim, str):
            if self.names is None or dim not in self.names:
                raise UnknownDimError(
                    f"the mesh has no dimension {dim!r}; "
                    + (f"there are {', '.join(self.names)}" if self.names else "they have no names")
                )
            return self.names.index(dim)
        count = len(self.shape)
        if not -count <= dim < count:
            raise UnknownDimError(
                f"the mesh has {count} dimension{'s' if count > 1 else ''}, not one of number {dim}"
            )
        return dim % count

    def keep(self, dims: Sequence[int]) -> MeshLayout:
        """The part along some dimensions, in their order: the others tell its blocks apart."""
        others = [dim for dim in range(len(self.shape)) if dim not in dims]
        order = (0, *(dim + 1 for dim in others), *(dim + 1 for dim in dims))
        shape = tuple(self.shape[dim] for dim in dims)
        names = None if self.names is None else tuple(self.names[dim] for dim in dims)
        ranks = self.ranks.transpose(order).reshape(-1, *shape)
        return MeshLayout(ranks, names, tuple(self.strides[dim] for dim in dims))

    def flatten(self, name: str | None) -> MeshLayout:
        """All dimensions as one."""
        named = name if name is not None else "_".join(self.names or ())
        ranks = self.ranks.reshape(len(self.ranks), -1)
        return MeshLayout(ranks, (named,) if named else None, (self._joint_stride(),))

    def split(self, dim: int, sizes: Sequence[int], names: Sequence[str] | None) -> MeshLayout:
        """One dimension as several. UsageError when their sizes do not fit."""
        if math.prod(sizes) != self.shape[dim]:
            raise UsageError(
                f"dimension {dim} of {self.shape[dim]} ranks cannot be split into {tuple(sizes)}"
            )
        shape = (*self.shape[:dim], *sizes, *self.shape[dim + 1 :])
        joint = None
        if self.names is not None:
            if names is None:
                raise UsageError("the mesh has names: give one for each new dimension")
            if len(names) != len(sizes):
                raise UsageError(f"{len(names)} names for {len(sizes)} new dimensions")
            joint = check_names((*self.names[:dim], *names, *self.names[dim + 1 :]), len(shape))
        stride = self.strides[dim]
        if not isinstance(stride, int):
            raise UsageError("a dimension flattened from several that are apart cannot be split")
        parts = [stride * math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
        strides = (*self.strides[:dim], *parts, *self.strides[dim + 1 :])
        return MeshLayout(self.ranks.reshape(len(self.ranks), *shape), joint, strides)

    @classmethod
    def joined(cls, layouts: Sequence[MeshLayout]) -> MeshLayout:
        """The dimensions of several parts of one mesh, one after the other. UsageError: they overlap."""
        first, *others = layouts
        blocks: list[Ranks] = []
        seen: set[int] = set()
        homes = [layout.homes() for layout in layouts]
        for rank in first.ranks.reshape(-1).tolist():
            if rank in seen:
                continue
            block = first.ranks[homes[0][rank]]
            for layout, home in zip(others, homes[1:], strict=True):
                along = np.array([layout.ranks[home[each]] for each in block.reshape(-1).tolist()])
                block = along.reshape(*block.shape, *layout.shape)
            inside = set(block.reshape(-1).tolist())
            if len(inside) < block.size or not inside.isdisjoint(seen):
                words = ", ".join(layout.words() for layout in layouts)
                raise UsageError(f"meshes that overlap cannot be concatenated: {words}")
            seen |= inside
            blocks.append(block)
        if any(layout.names is None for layout in layouts):
            raise UsageError("meshes without mesh_dim_names cannot be concatenated")
        names = tuple(name for layout in layouts for name in layout.names or ())
        strides = tuple(stride for layout in layouts for stride in layout.strides)
        return cls(np.array(blocks, np.int32), check_names(names, len(strides)), strides)

    def homes(self) -> dict[int, int]:
        """The block that each rank is in."""
        flat = self.ranks.reshape(len(self.ranks), -1).tolist()
        return {rank: at for at, block in enumerate(flat) for rank in block}

    def _joint_stride(self) -> Stride:
        flat: list[int] = []
        sizes: list[int] = []
        for size, stride in zip(self.shape, self.strides, strict=True):
            if not isinstance(stride, int):
                return tuple(one for each in self.strides for one in _as_tuple(each))
            if flat and flat[-1] == stride * size:
                flat[-1], sizes[-1] = stride, sizes[-1] * size
            else:
                flat.append(stride)
                sizes.append(size)
        return flat[0] if len(flat) == 1 else tuple(flat)

    def words(self) -> str:
        """'(dp=2, tp=4)', or '(2, 4)' without names."""
        if self.names is None:
            return str(self.shape)
        inside = ", ".join(
            f"{name}={size}" for name, size in zip(self.names, self.shape, strict=True)
        )
        return f"({inside})"


def to_ranks(mesh: object, world_size: int) -> Ranks:
    """Global ranks as an array. UsageError: not whole numbers, uneven rows, a rank twice or out of range."""
    tolist = getattr(mesh, "tolist", None)
    try:
        given = np.array(tolist() if tolist is not None else mesh)
    except ValueError:
        raise UsageError("the mesh is no array: its rows have different lengths") from None
    if not given.size or not given.ndim:
        raise UsageError("a mesh is an array of at least one rank")
    if given.dtype.kind not in "iu":
        raise UsageError(f"a mesh is an array of ranks, got {given.dtype}")
    flat = given.reshape(-1)
    low, high = int(flat.min()), int(flat.max())
    if low < 0 or high >= world_size:
        bad = low if low < 0 else high
        raise UsageError(f"rank {bad} of the mesh is not in a world of {world_size} ranks")
    if len(np.unique(flat)) < len(flat):
        values, counts = np.unique(flat, return_counts=True)
        raise UsageError(f"rank {int(values[counts > 1][0])} is in the mesh twice")
    return given.astype(np.int32)


def check_names(names: Sequence[str], count: int) -> tuple[str, ...]:
    """UsageError when they are not one name for each dimension, all different."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"mesh_dim_names must be a sequence of names, got {names!r}")
    if len(names) != count:
        raise UsageError(f"mesh_dim_names has {len(names)} names for {count} dimensions")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise UsageError(f"mesh_dim_names has {twice!r} twice")
    return tuple(names)


def _as_tuple(stride: Stride) -> tuple[int, ...]:
    return (stride,) if isinstance(stride, int) else stride
