"""A library that stands for CUDA's driver (cuda_streams.c), compiled where it is asked for."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "stream_of": (ctypes.c_void_p, [ctypes.c_int]),
    "set_capturing": (None, [ctypes.c_int, ctypes.c_int]),
    "set_holds": (None, [ctypes.c_int]),
    "set_full": (None, [ctypes.c_int]),
    "set_now": (None, [ctypes.c_float]),
    "count_made": (ctypes.c_int, []),
    "count_asked_elsewhere": (ctypes.c_int, []),
    "current_device": (ctypes.c_int, []),
    "set_current_device": (None, [ctypes.c_int]),
    "pass_next": (ctypes.c_int, [ctypes.c_float]),
}


def compile_driver(folder: Path) -> str | None:
    """Its path; None: there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    made = folder / "libcuda.so"
    source = Path(__file__).with_name("cuda_streams.c")
    command = [compiler, "-shared", "-fPIC", "-pthread", "-o", str(made), str(source)]
    subprocess.run(command, check=True)
    return str(made)


def open_driver(path: str) -> ctypes.CDLL:
    """The same library, for what a test tells it."""
    library = ctypes.CDLL(path)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
