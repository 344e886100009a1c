"""python -m distdbg: the same as the command `distdbg`."""

from __future__ import annotations

import sys

from distdbg.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
