"""Which files are of Python and of installed packages, and not of the program that a rank runs. Pure."""

from __future__ import annotations

import os
import re
import sysconfig
from functools import cache

_COMPILED = (".pyx", ".pxd", ".pxi")
_FOLDERS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def is_library(path: str) -> bool:
    """Whether this file is Python's own, an installed package's, or the script that starts one.

    Records come from other machines as well, whose Python is elsewhere.
    """
    if path.startswith(_own()) or any(folder in path for folder in _FOLDERS):
        return True
    if path.endswith(_COMPILED):
        return True  # of Cython, which has the name alone: 'numpy/random/_common.pyx'
    return _STANDARD.search(path) is not None


_STANDARD = re.compile(r"/lib(64)?/python3(\.\d+)?t?/")


@cache
def _own() -> tuple[str, ...]:
    """What files of Python itself begin with."""
    found = [sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "scripts")]
    return ("<frozen ", *(folder + os.sep for folder in found if folder))
