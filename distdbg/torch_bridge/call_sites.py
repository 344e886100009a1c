"""Which lines are none of the program's: ops are told with the line that called torch."""

from __future__ import annotations

import os
import sys
from typing import Any

from distdbg.check.sites import skip_folder


def skip_torch(torch: Any) -> None:
    """Before a record begins: skip torch, and the wrapper by which it marks functions as deprecated."""
    skip_folder(os.path.dirname(os.path.abspath(torch.__file__)))
    wrappers = sys.modules.get("typing_extensions")
    if wrappers is not None and wrappers.__file__:
        skip_folder(wrappers.__file__)
