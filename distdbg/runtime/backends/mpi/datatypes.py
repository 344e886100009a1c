"""The MPI datatype of each of our dtypes; what MPI lacks travels as so many bytes per element."""

from __future__ import annotations

from typing import Any

from distdbg.ops.dtypes import Dtype

#: MPI's names. What is not here has no datatype in the standard.
_NAMES = {
    Dtype.bool_: "C_BOOL",
    Dtype.uint8: "UINT8_T",
    Dtype.int8: "INT8_T",
    Dtype.uint16: "UINT16_T",
    Dtype.int16: "INT16_T",
    Dtype.uint32: "UINT32_T",
    Dtype.int32: "INT32_T",
    Dtype.uint64: "UINT64_T",
    Dtype.int64: "INT64_T",
    Dtype.float32: "FLOAT",
    Dtype.float64: "DOUBLE",
    Dtype.complex64: "C_FLOAT_COMPLEX",
    Dtype.complex128: "C_DOUBLE_COMPLEX",
}

#: Dtypes that MPI can move and not reduce.
FOREIGN_TO_MPI = frozenset(dtype for dtype in Dtype if dtype not in _NAMES)


class Datatypes:
    """One process's: made once and never freed."""

    def __init__(self, mpi: Any) -> None:
        self._of: dict[int, Any] = {}
        #: By handle: what a reduction of our own is called with.
        self._codes: dict[int, int] = {}
        for dtype in Dtype:
            name = _NAMES.get(dtype)
            if name is not None:
                datatype = getattr(mpi, name)
            else:
                datatype = mpi.BYTE.Create_contiguous(dtype.itemsize).Commit()
                datatype.Set_name(f"distdbg {dtype.label}")
            self._of[int(dtype)] = datatype
            self._codes[datatype.handle] = int(dtype)

    def of(self, code: int) -> Any:
        """The datatype for a Dtype."""
        return self._of[code]

    def code(self, datatype: Any) -> int:
        """The Dtype for a datatype that `of` gave."""
        return self._codes[datatype.handle]
