"""Where the records of a run lie."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path


def new_run_name() -> str:
    """Return the name of a new run: when it began, and something random."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + os.urandom(3).hex()


def place_record(
    run: str, rank: int, environ: Mapping[str, str] = os.environ
) -> tuple[Path | None, str]:
    """Return the path of a rank's record, in a folder that is there; else None, and why."""
    folder = environ.get("DISTDBG_RUN_DIR")
    if not folder:
        return None, ""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return None, str(error)
    return path / f"rank{rank:05}.ddr", ""
