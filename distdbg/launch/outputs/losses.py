"""Files that a launcher could not write: which, since when and why, in one line. Pure."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distdbg.record.durations import nbytes_text


@dataclass(slots=True, kw_only=True)
class OutputLoss:
    """One file, or a folder in which nothing can be written."""

    path: Path
    why: str
    """'No space left on device'."""
    since_wall_ns: int
    nbytes: int = 0
    """What is not in it; 0: not known."""


def say_losses(losses: Sequence[OutputLoss]) -> str:
    """'not written since 13:05:01: a/stdout.log (No space left on device); ...'; ''."""
    if not losses:
        return ""
    first = min(losses, key=lambda loss: loss.since_wall_ns)
    when = time.strftime("%H:%M:%S", time.localtime(first.since_wall_ns // 10**9))
    if len(losses) == 1:
        what = str(first.path)
    else:
        folder = os.path.commonpath([loss.path.parent for loss in losses])
        what = f"{len(losses)} files in {folder}, {first.path.name} first"
    line = f"not written since {when}: {what} ({first.why})"
    nbytes = sum(loss.nbytes for loss in losses)
    if nbytes:
        where = "it" if len(losses) == 1 else "them"
        line += f"; {nbytes_text(nbytes)} of output are missing in {where}"
    return line
