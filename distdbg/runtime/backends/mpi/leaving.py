"""How a process leaves MPI: with MPI_Finalize where that can end, and without it where it cannot.

MPI_Finalize waits for all ranks, without a limit, and MPI cannot take back a collective that it has. At exit:

    an op was given up, or is in flight still, or this
    process ends by an exception                  no MPI_Finalize: it could not end
    else                                          wait until all ranks are here (MPI_Ibarrier of our own),
                                                  and only then call it; when one is gone that was not here
                                                  yet, leave without

A process that leaves without it is, to mpiexec, one that failed, and mpiexec then ends the job. So it should.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

from distdbg.log.logs import get_logger
from distdbg.runtime.backends.nap import LONGEST_S, PollBackoff
from distdbg.runtime.rendezvous.process import is_gone

if TYPE_CHECKING:
    from distdbg.runtime.backends.mpi.library import MpiLibrary

#: How often the processes of the other ranks are looked at.
_LOOK_S: Final = 0.25
#: How long ops that nobody has waited for may take to end.
_SETTLE_S: Final = 1.0
#: After so long it is said what is waited for.
_PATIENCE_S: Final = 10.0
#: How long mpi4py's own MPI_Finalize may take where it cannot be kept from it.
_LAST_S: Final = 5

_log = get_logger("runtime")


def leave_at_exit(library: MpiLibrary) -> None:
    """Leave MPI when the program ends; a child that was forked has none."""
    atexit.register(_leave, library, os.getpid())


def _leave(library: MpiLibrary, pid: int) -> None:
    mpi = library.MPI
    if os.getpid() != pid or mpi.Is_finalized():
        return
    can_end = not library.has_given_up and not _is_failing() and _has_settled(library)
    can_end = can_end and _meet_others(library)
    library.progress.close()
    if can_end:
        if library.finalizes:
            mpi.Finalize()
        return
    _log.info("leaving without MPI_Finalize, which could not end", rank=library.rank)
    if not library.finalizes:
        # The program had imported mpi4py before, which finalizes MPI after all of Python.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LAST_S)


def _is_failing() -> bool:
    # At a prompt it may be an old one.
    return not hasattr(sys, "ps1") and getattr(sys, "last_value", None) is not None


def _has_settled(library: MpiLibrary) -> bool:
    """Whether no op is left in flight, as of a program that has not destroyed its groups; waits a little."""
    until = time.monotonic() + _SETTLE_S
    while library.in_flight and time.monotonic() < until:
        time.sleep(LONGEST_S)
    return not library.in_flight


def _meet_others(library: MpiLibrary) -> bool:
    """Wait until all ranks are about to leave; False when one is gone."""
    request = library.world.Ibarrier()
    me = library.processes[library.rank]
    began = last_look = time.monotonic()
    nap = PollBackoff()
    has_said = False
    while not request.Test():
        nap()
        now = time.monotonic()
        if now - last_look < _LOOK_S:
            continue
        last_look = now
        gone = [rank for rank, process in enumerate(library.processes) if is_gone(process, me)]
        if gone:
            # Who has passed the barrier may be gone a moment before it is known here.
            time.sleep(LONGEST_S)
            if not request.Test():
                _log.info("rank %d is gone without MPI_Finalize", gone[0], rank=library.rank)
                return False
            return True
        if not has_said and now - began > _PATIENCE_S:
            has_said = True
            _log.info("waiting for all ranks to end, to call MPI_Finalize", rank=library.rank)
    return True
