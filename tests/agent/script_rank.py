"""What a forked rank of `conftest.Job` does: runs a script, as the interpreter would that was given it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import ModuleType


def run_script(path: str) -> None:
    tempfile.tempdir = None  # that of whoever has forked this
    sys.argv[:] = [path]
    sys.path.insert(0, str(Path(path).parent))
    script = ModuleType("__main__")
    script.__dict__.update(__file__=path)
    sys.modules["__main__"] = script
    exec(compile(Path(path).read_text(), path, "exec"), script.__dict__)
