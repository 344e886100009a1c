"""Runs a file by runpy.run_path: python -m distdbg.launch.run_path FILE [ARGUMENTS]. For --run-path."""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
