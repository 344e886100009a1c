"""What a backend of torch's own (ProcessGroupGloo and its kin) takes: its stores, options and reduce ops.

Like arrays/torch_arrays.py this never imports torch: who returns such a backend has.
"""

from __future__ import annotations

import sys
from copy import copy
from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np

from distdbg.ops.call import Call
from distdbg.runtime.api.options import CollectiveOptions
from distdbg.runtime.store import PrefixStore, Store

#: torch.distributed, which is not ours to import.
Torch = Any


def _torch() -> Torch | None:
    found = getattr(sys.modules.get("torch"), "distributed", None)
    return found if hasattr(found, "ProcessGroup") else None


def is_torchs(backend: object) -> bool:
    """Whether a backend is one of torch's C++ classes, which take torch's own options only."""
    torch = _torch()
    if torch is None:
        return False
    kinds = [getattr(torch, name, None) for name in ("Backend", "ProcessGroup")]
    kinds.append(getattr(sys.modules.get("torch._C._distributed_c10d"), "Backend", None))
    return isinstance(backend, tuple(kind for kind in kinds if isinstance(kind, type)))


def store_for_maker(store: Store, timeout: timedelta) -> Store:
    """The store that the maker of a backend gets: where torch is imported, one of torch's type too."""
    torch = _torch()
    if torch is None:
        return store
    both: Store = _store_class(torch.Store)(store)
    both.set_timeout(timeout)
    return both


@cache
def _store_class(base: Any) -> Any:
    class TorchStore(PrefixStore, base):  # type: ignore[misc]  # torch's class is not known here
        """A part of a store of ours, which torch's C++ takes for one of its own."""

        def __init__(self, store: Store) -> None:
            base.__init__(self)
            PrefixStore.__init__(self, "backend", store)

    return TorchStore


def with_tensors(call: Call) -> Call:
    """The call with tensors on the memory of its NumPy arrays."""
    theirs = copy(call)
    theirs.outputs = tuple(map(_tensor_on, call.outputs))
    theirs.inputs = (
        theirs.outputs if call.inputs is call.outputs else tuple(map(_tensor_on, call.inputs))
    )
    return theirs


def _tensor_on(array: Any) -> Any:
    return sys.modules["torch"].from_numpy(array) if isinstance(array, np.ndarray) else array


def options_for_torch(options: CollectiveOptions) -> Any:
    """The same options as torch's class of that name."""
    torch = sys.modules["torch._C._distributed_c10d"]
    theirs = getattr(torch, type(options).__name__)()
    for name, value in vars(options).items():
        if hasattr(theirs, name) and value is not None:
            # PREMUL_SUM is a SUM by now: its factor is in the input.
            is_op = name == "reduceOp"
            setattr(theirs, name, getattr(torch.ReduceOp, value.op.name) if is_op else value)
    return theirs
