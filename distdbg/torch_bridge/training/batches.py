"""Each batch of a DataLoader, and its end, as a mark in the record, as `dist.batches` writes them.

So a rank that had fewer batches than others is named as such (`record/batches.py`).
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any, Final

from distdbg.record.known_marks import BATCH, OUT_OF_BATCHES
from distdbg.runtime.api.marks import mark

_IS_MARKED: Final = "_distdbg_marks"


def mark_loaded_batches() -> None:
    """Patch torch's DataLoader, where that is loaded; once in a process, however often it is called."""
    loading = sys.modules.get("torch.utils.data.dataloader")
    kind = getattr(loading, "_BaseDataLoaderIter", None)
    if kind is not None and not hasattr(kind, _IS_MARKED):
        setattr(kind, _IS_MARKED, True)
        patch_batches(kind)


def patch_batches(kind: Any) -> None:
    """Patch torch's class of the iterators of a DataLoader."""
    real = kind.__next__

    @wraps(real)
    def __next__(iterator: Any) -> Any:
        try:
            batch = real(iterator)
        except StopIteration:
            mark(OUT_OF_BATCHES, _count(iterator))
            raise
        mark(BATCH, _count(iterator))
        return batch

    kind.__next__ = __next__


def _count(iterator: Any) -> int:
    return int(getattr(iterator, "_num_yielded", 0))
