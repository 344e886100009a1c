"""Starts MPI in this process: once, by the first group that needs it; it is left at exit (leaving.py).

All ranks that mpiexec started meet here, in a communicator of our own and in the exchange of who they are.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from distdbg.control.clock import JobClock
from distdbg.errors import BackendMissingError, DistBackendError
from distdbg.runtime.backends.mpi.available import NAME_IT, what_helps, why_not
from distdbg.runtime.backends.mpi.leaving import leave_at_exit
from distdbg.runtime.backends.mpi.library import MpiLibrary, library_name
from distdbg.runtime.backends.mpi.patience import await_request
from distdbg.runtime.rendezvous.detect import detect
from distdbg.runtime.rendezvous.process import ProcessIdentity, identify_self

_IDENTITY_NBYTES: Final = 512


_lock = threading.Lock()  # protects _library
_library: MpiLibrary | None = None


def started() -> MpiLibrary | None:
    """MPI of this process, if a group has needed it."""
    return _library


def start(timeout_s: float, clock: JobClock, expected_size: int = -1) -> MpiLibrary:
    """Start MPI, if need be; returns when all ranks of mpiexec have come.

    `expected_size`: what the program said; 1 allows a start without mpiexec.
    """
    global _library
    with _lock:
        if _library is None:
            _library = _start(timeout_s, clock, expected_size)
        check_running(_library.MPI)
        return _library


def check_running(mpi: Any) -> None:
    """Raise where MPI was finalized: any call of it would end the process."""
    if mpi.Is_finalized():
        raise DistBackendError(
            "backend 'mpi': MPI of this process was finalized before, and cannot start again",
            hint="call MPI.Finalize() after all ops of groups over MPI",
        )


def _start(timeout_s: float, clock: JobClock, expected_size: int) -> MpiLibrary:
    mpi, finalizes = _load()
    size = int(mpi.COMM_WORLD.Get_size())
    if size == 1:
        _check_alone(mpi, expected_size)
    world, request = mpi.COMM_WORLD.Idup()
    waits = f"rank {mpi.COMM_WORLD.Get_rank()}: not all {size} ranks of MPI began to use it"
    await_request(request, clock, timeout_s, waits)
    world.Set_errhandler(mpi.ERRORS_RETURN)
    world.Set_name("distdbg")
    library = MpiLibrary(mpi, world, _exchange_identities(mpi, world, clock, timeout_s), finalizes)
    leave_at_exit(library)
    return library


def _load() -> tuple[Any, bool]:
    """The module, and whether MPI is ours to finalize."""
    reason = why_not()
    if reason is not None:
        raise BackendMissingError(
            f"backend 'mpi' is not available here: {reason}", hint=what_helps()
        )
    is_ours = "mpi4py.MPI" not in sys.modules
    import mpi4py

    if is_ours:
        # It would finalize MPI after all of Python, without asking whether the others still can.
        mpi4py.rc.finalize = False
    try:
        mpi = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        text = str(error).partition("\n")[0]
        raise BackendMissingError(
            f"backend 'mpi': MPI cannot be loaded: {text}", hint=what_helps()
        ) from error
    check_running(mpi)
    if not mpi.Is_initialized():
        is_ours = True
        mpi.Init_thread(mpi.THREAD_MULTIPLE)
    return mpi, is_ours


def _check_alone(mpi: Any, expected_size: int) -> None:
    place = detect(os.environ)
    if place is not None and place.world_size == 1:
        return
    if place is not None:
        raise DistBackendError(
            f"backend 'mpi': {place.launcher} started {place.world_size} ranks, and MPI sees one alone",
            details=[f"loaded: {library_name(mpi)}"],
            hint=NAME_IT,
        )
    if expected_size != 1:
        raise DistBackendError(
            "backend 'mpi': MPI sees one rank alone; this process was not started by mpiexec",
            details=[f"loaded: {library_name(mpi)}"],
            hint="mpiexec -n 4 python script.py",
        )


def _exchange_identities(
    mpi: Any, world: Any, clock: JobClock, timeout_s: float
) -> list[ProcessIdentity]:
    mine = np.zeros(_IDENTITY_NBYTES, np.uint8)
    text = json.dumps(asdict(identify_self())).encode()
    mine[: len(text)] = np.frombuffer(text, np.uint8)
    found = np.zeros((world.Get_size(), _IDENTITY_NBYTES), np.uint8)
    request = world.Iallgather([mine, mpi.BYTE], [found, mpi.BYTE])
    await_request(request, clock, timeout_s, "the ranks of MPI did not say who they are")
    return [ProcessIdentity(**json.loads(row.tobytes().rstrip(b"\0"))) for row in found]
