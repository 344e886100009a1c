"""The MPI op for a reduce op and a dtype: MPI's own, or one of ours around the kernels of this package.

Ours where MPI has none: float16, bfloat16, float8. And for MIN and MAX of real floats, since what MPI makes
of a NaN there depends on the library and on the order of ranks; here a NaN stays. And for SUM of integers of
8 and 16 bits: Open MPI adds them with the processor's saturating instructions, so that 200 + 100 is 255.

bool is 0 or 1 in one byte: sums are "or" and products are "and", as in our own engine.
"""

from __future__ import annotations

import threading
from typing import Any

from distdbg.native import View, reduce
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType
from distdbg.runtime.backends.mpi.datatypes import FOREIGN_TO_MPI, Datatypes

_NARROW = (Dtype.uint8, Dtype.int8, Dtype.uint16, Dtype.int16)
_BOOL = {
    RedOpType.SUM: "LOR",
    RedOpType.MAX: "LOR",
    RedOpType.BOR: "LOR",
    RedOpType.PRODUCT: "LAND",
    RedOpType.MIN: "LAND",
    RedOpType.BAND: "LAND",
    RedOpType.BXOR: "LXOR",
}
_PLAIN = {
    RedOpType.SUM: "SUM",
    RedOpType.PRODUCT: "PROD",
    RedOpType.MIN: "MIN",
    RedOpType.MAX: "MAX",
    RedOpType.BAND: "BAND",
    RedOpType.BOR: "BOR",
    RedOpType.BXOR: "BXOR",
}


def name_of(kind: RedOpType, dtype: Dtype) -> str | None:
    """MPI's name of the op; None where it is ours. AVG is a sum that is divided afterwards."""
    if kind is RedOpType.AVG:
        kind = RedOpType.SUM
    if dtype is Dtype.bool_:
        return _BOOL[kind]
    if dtype in FOREIGN_TO_MPI:
        return None
    if dtype in _NARROW and kind is RedOpType.SUM:
        return None
    if dtype.is_floating and kind in (RedOpType.MIN, RedOpType.MAX):
        return None
    return _PLAIN[kind]


class Reductions:
    """One process's ops. mpi4py has room for 16 that are made by programs; these are four at most."""

    def __init__(self, mpi: Any, datatypes: Datatypes) -> None:
        self._mpi = mpi
        self._datatypes = datatypes
        self._lock = threading.Lock()  # protects _own
        self._own: dict[RedOpType, Any] = {}

    def of(self, kind: RedOpType, dtype: Dtype) -> Any:
        """The op."""
        name = name_of(kind, dtype)
        if name is not None:
            return getattr(self._mpi, name)
        if kind is RedOpType.AVG:
            kind = RedOpType.SUM
        with self._lock:
            op = self._own.get(kind)
            if op is None:
                op = self._own[kind] = self._make(kind)
            return op

    def _make(self, kind: RedOpType) -> Any:
        code, datatypes = int(kind), self._datatypes

        def fold(first: Any, second: Any, datatype: Any) -> None:
            # Called by MPI, on any thread, while it looks after a request.
            dtype = datatypes.code(datatype)
            into = View(second, True)
            reduce(code, dtype, into, View(first, False), into)

        return self._mpi.Op.Create(fold, commute=True)
