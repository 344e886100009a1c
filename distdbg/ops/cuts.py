"""Where the blocks of a Call lie in its arrays: one array per block, or parts of one flat array.

Pure: arrays are seen only through `View.nbytes`, `.shape` and `.dtype`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from distdbg.ops.call import Kind


class ViewLike(Protocol):
    """The part of a native View that planning needs."""

    @property
    def nbytes(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> int: ...


#: view index, offset in bytes, nbytes
Cut = tuple[int, int, int]

_CUT_INPUT = frozenset({Kind.SCATTER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL})
_CUT_OUTPUT = frozenset({Kind.ALL_GATHER, Kind.GATHER, Kind.ALL_TO_ALL})


def cut_blocks(
    views: Sequence[ViewLike], splits: Sequence[int] | None, size: int, is_cut: bool
) -> list[Cut]:
    """Where each block lies: one per view, or the parts of one flat view."""
    if not is_cut or len(views) != 1 or size == 1:
        return [(index, 0, view.nbytes) for index, view in enumerate(views)]
    view = views[0]
    if splits is None:
        block = view.nbytes // size
        return [(0, peer * block, block) for peer in range(size)]
    row = view.nbytes // view.shape[0] if view.shape[0] else 0
    cuts: list[Cut] = []
    offset = 0
    for rows in splits:
        cuts.append((0, offset, rows * row))
        offset += rows * row
    return cuts


def is_input_cut(kind: Kind) -> bool:
    """Whether one flat input stands for a block per rank."""
    return kind in _CUT_INPUT


def is_output_cut(kind: Kind) -> bool:
    """Whether one flat output stands for a block per rank."""
    return kind in _CUT_OUTPUT
