"""What NCCL has and CuPy does not bind, through ctypes, from the library that CuPy has loaded."""

from __future__ import annotations

import ctypes
from typing import Final

from distdbg.errors import DistBackendError

#: ncclScalarHostImmediate: the factor is read during the call.
_FROM_HOST: Final = 1


class NcclFunctions:
    """Some functions of libnccl.so.2. A communicator is its address, as CuPy's `comm` has it."""

    def __init__(self) -> None:
        # Found by its name, wherever CuPy has found it.
        library = ctypes.CDLL("libnccl.so.2")
        self._last_error = library.ncclGetLastError
        self._last_error.restype = ctypes.c_char_p
        self._last_error.argtypes = [ctypes.c_void_p]
        self._create = library.ncclRedOpCreatePreMulSum
        self._create.argtypes = [
            ctypes.POINTER(ctypes.c_int), ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
        ]  # fmt: skip
        self._destroy = library.ncclRedOpDestroy
        self._destroy.argtypes = [ctypes.c_int, ctypes.c_void_p]

    def last_error(self, comm: int) -> str:
        """What NCCL says of the last error on this communicator (0: on any); '' if nothing."""
        reported: bytes | None = self._last_error(comm or None)
        return "" if reported is None else reported.decode(errors="replace").strip()

    def make_premul_sum(self, factor: bytes, code: int, comm: int) -> int:
        """An op that multiplies each rank's input by its factor, one element of datatype `code`."""
        op = ctypes.c_int()
        scalar = ctypes.create_string_buffer(factor, len(factor))
        status = self._create(
            ctypes.byref(op), ctypes.cast(scalar, ctypes.c_void_p), code, _FROM_HOST, comm
        )
        if status:
            raise DistBackendError(
                f"NCCL made no PREMUL_SUM (error {status}): {self.last_error(comm)}".rstrip(": ")
            )
        return op.value

    def destroy_op(self, op: int, comm: int) -> None:
        """Free such an op; calls that were made with it go on."""
        self._destroy(op, comm)
