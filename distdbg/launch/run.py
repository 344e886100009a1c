"""`distdbg run`: start the ranks of this host, watch them, start them anew, clean up, report.

    launcher   this process: one loop over the warden's news, signals and the other launchers
    warden     starts, reaps and ends the ranks and the agent (warden.py)

Each turn of the outer loop is one start of all ranks of the job: a round of the rendezvous, an
Attempt, and what `decide` makes of its end. Whatever ends this function, the warden ends the ranks.
"""

from __future__ import annotations

from contextlib import ExitStack

from distdbg.command import say
from distdbg.launch.options import RunOptions
from distdbg.launch.signals import Signals
from distdbg.launch.warden import Warden


def run(options: RunOptions) -> int:
    """Run the job; returns the exit code: the first failing rank's, 128 + n for signals."""
    for note in options.notes:
        say(note)
    # First of all: the warden is forked while this process is small and has one thread.
    with (
        Warden.start() as warden,
        Signals(options.signals_to_handle) as signals,
        ExitStack() as stack,
    ):
        from distdbg.launch.job import Job  # loads what the warden need not have

        return Job(options, warden, signals, stack).run()
