"""Which lines are none of the program's: ops are told with the line that called torch."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from distdbg.ops.sites import skip_folder, skipped_folders

if TYPE_CHECKING:
    from distdbg.native import Recorder


def skip_torch(torch: Any) -> None:
    """Before a record begins: skip torch, and the wrapper by which it marks functions as deprecated."""
    skip_folder(os.path.dirname(os.path.abspath(torch.__file__)))
    wrappers = sys.modules.get("typing_extensions")
    if wrappers is not None and wrappers.__file__:
        skip_folder(wrappers.__file__)


def skip_torch_in(recorder: Recorder | None, torch: Any) -> None:
    """The same for a record that has begun."""
    before = skipped_folders()
    skip_torch(torch)
    if recorder is not None:
        for folder in skipped_folders()[len(before) :]:
            recorder.skip_folder(folder)
