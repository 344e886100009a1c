"""How deep a RecursionError was, and from where the recursion began: its traceback repeats one line."""

from __future__ import annotations

import os
import sys
import traceback
from collections import Counter
from types import CodeType


def recursion_hint(error: RecursionError) -> str:
    """'between() was 992 calls deep, first called at traffic.py:25 (hourly): ...'; '' without frames."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if not frames:
        return ""
    [(code, depth)] = Counter(code for code, _ in frames).most_common(1)
    first = next(at for at, (one, _) in enumerate(frames) if one is code)
    began = f", first called at {_place(*frames[first - 1])}" if first else ""
    return (
        f"{code.co_name}() was {depth:,} calls deep{began}: either it never ends, or its data is deeper "
        f"than the limit ({sys.getrecursionlimit():,})"
    )


def _place(code: CodeType, line: int) -> str:
    name = code.co_qualname.replace(".<locals>.<listcomp>", "")
    return f"{os.path.basename(code.co_filename)}:{line} ({name})"
