"""What CuPy does not bind of the CUDA driver: to which allocation an address belongs."""

from __future__ import annotations

import ctypes
from typing import Final

from distdbg.errors import DistBackendError

#: CU_POINTER_ATTRIBUTE_BUFFER_ID: of an allocation, and of no other one that this process makes.
_BUFFER_ID: Final = 7


class CudaFunctions:
    """Some functions of libcuda.so.1, which is there wherever a GPU is."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libcuda.so.1")
        self._range = library.cuMemGetAddressRange_v2
        self._range.argtypes = [
            ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_size_t), ctypes.c_uint64,
        ]  # fmt: skip
        self._attribute = library.cuPointerGetAttribute
        self._attribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]

    def allocation(self, address: int) -> tuple[int, int]:
        """Where the allocation begins that an address is in, and its number of bytes."""
        base, nbytes = ctypes.c_uint64(), ctypes.c_size_t()
        status = self._range(ctypes.byref(base), ctypes.byref(nbytes), address)
        if status:
            raise DistBackendError(f"CUDA knows no allocation at {address:#x} (error {status})")
        return base.value, nbytes.value

    def buffer_id(self, address: int) -> int | None:
        """The number of the allocation that an address is in; None where it was freed."""
        number = ctypes.c_uint64()
        status = self._attribute(ctypes.byref(number), _BUFFER_ID, address)
        return None if status else number.value
