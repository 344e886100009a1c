"""`distdbg run`: start the ranks of this host, watch them, restart them, clean up, report.

    launcher   this process: one loop over the warden's news, signals and the other launchers
    warden     starts, reaps and ends the ranks and the agent (warden.py)

Each turn of the outer loop is one start of all ranks of the job: a round of the rendezvous, an
Attempt, and what `decide` makes of its end. Whatever ends this function, the warden ends the ranks.
"""

from __future__ import annotations

import errno
import os
import signal
from contextlib import ExitStack

from distdbg.command import print_error
from distdbg.errors import ConfigError
from distdbg.launch.exports import check_here
from distdbg.launch.options import RunOptions
from distdbg.launch.signals import Signals
from distdbg.launch.warden import Warden

_SCARCE = {
    errno.EMFILE: "`ulimit -n` says how many files a process may open; raise it",
    errno.ENFILE: "this host has no room for more open files",
    errno.EAGAIN: "`ulimit -u` says how many processes this user may have; raise it",
    errno.ENOMEM: "this host has no memory left",
}


def run(options: RunOptions) -> int:
    """Run the job; returns the exit code: the first failing rank's, 128 + n for signals."""
    _open_missing_streams()
    # Where whoever started this process ignored it, nobody could say how the warden ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for note in options.notes:
        print_error(note)
    if options.agent:
        check_here(options.exports)
    # First of all: the warden is forked while this process is small and has one thread.
    try:
        with (
            Warden.start() as warden,
            Signals(options.signals_to_handle) as signals,
            ExitStack() as stack,
        ):
            from distdbg.launch.job import LaunchedJob  # loads what the warden need not have

            code = LaunchedJob(options, warden, signals, stack).run()
    except OSError as error:
        if error.errno not in _SCARCE:
            raise
        raise ConfigError(
            f"the launcher cannot continue: {error.strerror}", hint=_SCARCE[error.errno]
        ) from error
    if code == 0 and options.agent and options.nproc > 1:
        from distdbg.runtime.tuning.background import start_tuner

        start_tuner()
    return code


def _open_missing_streams() -> None:
    """Open streams that were closed, so that no socket gets their numbers, and then their bytes."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
