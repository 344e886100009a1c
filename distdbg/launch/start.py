"""From a command line to a running job; `distdbg run` and `python -m distdbg.launch` are this."""

from __future__ import annotations

import os
from collections.abc import Sequence

from distdbg.launch.flags import parse
from distdbg.launch.machine import allowed_cpus, find_gpus
from distdbg.launch.nproc import visible_gpus
from distdbg.launch.options import LaunchHost, RunOptions, read_options
from distdbg.launch.own_environment import own_environment


def read_command_line(
    argv: Sequence[str], *, prog: str = "distdbg run", is_old_form: bool = False
) -> RunOptions:
    """Return what a command line asks of this host."""
    environ = own_environment(os.environ)
    flags = parse(argv, environ, prog=prog, is_old_form=is_old_form)
    gpus = visible_gpus(find_gpus(), environ.get("CUDA_VISIBLE_DEVICES"))
    return read_options(flags, environ, LaunchHost(cpus=len(allowed_cpus()), gpus=len(gpus)))


def launch(argv: Sequence[str], *, prog: str = "distdbg run", is_old_form: bool = False) -> int:
    """Run the job of a command line to its end; return the exit code."""
    options = read_command_line(argv, prog=prog, is_old_form=is_old_form)
    from distdbg.launch.run import run  # the rest of the launcher, which --help does not need
    from distdbg.runtime.process.debugger_seam import check_stops

    check_stops()  # once, and not by every rank
    return run(options)
