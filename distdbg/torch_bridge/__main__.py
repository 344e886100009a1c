"""`python -m distdbg.torch_bridge train.py ...`: run a torch program that is watched and checked.

    python -m distdbg.torch_bridge [-m] SCRIPT [ARGUMENTS]

The same as DISTDBG_TORCH=1 python SCRIPT: processes that it starts are watched too.
"""

from __future__ import annotations

import os
import runpy
import sys

from distdbg.torch_bridge.hook import install

_USAGE = "usage: python -m distdbg.torch_bridge [-m] SCRIPT [ARGUMENTS]\n"


def main(arguments: list[str]) -> int:
    """Run the script in this process, as Python would."""
    is_module = arguments[:1] == ["-m"]
    program = arguments[1:] if is_module else arguments
    if not program or program[0] in ("-h", "--help"):
        sys.stderr.write(_USAGE)
        return 0 if program else 2
    os.environ["DISTDBG_TORCH"] = "1"
    install()
    sys.argv[:] = program
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
