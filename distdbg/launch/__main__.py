"""torch.distributed.launch's older form: python -m distdbg.launch [flags] script [arguments].

As `distdbg run`, but each script gets --local-rank=N as its first argument, unless --use-env is given.
"""

from __future__ import annotations

import sys

from distdbg.command import run_command, spare_last_collection
from distdbg.launch.start import launch

_PROG = "python -m distdbg.launch"

if __name__ == "__main__":
    code = run_command(lambda: launch(sys.argv[1:], prog=_PROG, is_old_form=True))
    spare_last_collection()
    sys.exit(code)
