"""Blocks the host until a GPU has done all that is queued: for libraries that know nothing of streams."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from distdbg.runtime.arrays.device_arrays import device_index, is_on_device, library_of
from distdbg.runtime.arrays.torch_arrays import is_tensor


def wait_for_device(arrays: Sequence[Any]) -> None:
    """Wait for the device that the arrays are on; nothing where they are on the host.

    The whole device, not a stream: an op may be started by another thread than the program's.
    """
    for array in arrays:
        if is_on_device(array):
            if is_tensor(array):
                sys.modules["torch"].cuda.synchronize(array.device)
            else:
                cuda = getattr(library_of(array), "cuda", None)
                if cuda is not None:
                    cuda.Device(device_index(array)).synchronize()
            return
