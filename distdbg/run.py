"""`python -m distdbg.run`, as `python -m torch.distributed.run`: the same as `distdbg run`."""

from __future__ import annotations

import sys

from distdbg.command import run_command, spare_last_collection
from distdbg.launch.start import launch

if __name__ == "__main__":
    code = run_command(lambda: launch(sys.argv[1:], prog="python -m distdbg.run"))
    spare_last_collection()
    sys.exit(code)
