"""Sees whether one of PyTorch's profilers runs, so that ops are to be shown in it (profiled_ops.py).

Like arrays/torch_arrays.py this never imports torch.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

#: torch.autograd.profiler; None until torch was seen. ProcessGroup.run looks at its flag for each op.
profiler: Any = None


class _Shown(threading.local):
    """Whether this thread's op is being shown: what it consists of is not shown again."""

    op = False


#: Set by profiled_ops.py.
shown = _Shown()


def look_for_torch() -> None:
    """Notice that somebody has imported torch."""
    global profiler
    profiler = getattr(getattr(sys.modules.get("torch"), "autograd", None), "profiler", None)


def is_on() -> bool:
    """Whether a profiler runs that does not show this thread's op yet."""
    return bool(profiler is not None and profiler._is_profiler_enabled and not shown.op)
