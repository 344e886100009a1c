"""MPI of this process: started once, by the first group that needs it, and left at exit (leaving.py).

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
from distdbg.errors import BackendMissingError, DistBackendError, UsageError
from distdbg.runtime.backends.mpi import wide
from distdbg.runtime.backends.mpi.any_source import AnySource, loses_any_source
from distdbg.runtime.backends.mpi.available import NAME_IT, what_helps, why_not
from distdbg.runtime.backends.mpi.datatypes import Datatypes
from distdbg.runtime.backends.mpi.leaving import leave_at_exit
from distdbg.runtime.backends.mpi.memory import Piece, Started
from distdbg.runtime.backends.mpi.on_gpus import reads_gpus
from distdbg.runtime.backends.mpi.patience import SPINS, await_request
from distdbg.runtime.backends.mpi.reductions import Reductions
from distdbg.runtime.backends.progress import Progress
from distdbg.runtime.rendezvous.detect import detect
from distdbg.runtime.rendezvous.process import Process, identify_self

#: What MPI before version 4 can count.
_INT_LIMIT: Final = 2**31 - 1
_NO_LIMIT: Final = 2**62
_IDENTITY_NBYTES: Final = 512


class Library:
    """MPI as all groups of this process use it."""

    def __init__(self, mpi: Any, world: Any, processes: list[Process], finalizes: bool) -> None:
        #: The module mpi4py.MPI.
        self.MPI: Final = mpi
        #: A communicator of all ranks that nobody else uses.
        self.world: Final = world
        self.rank = int(world.Get_rank())
        self.size = int(world.Get_size())
        #: By MPI rank.
        self.processes: Final = processes
        #: Whether MPI is ours to finalize.
        self.finalizes: Final = finalizes
        #: 'Open MPI v5.0.11'
        self.name: Final = library_name(mpi)
        #: Whether MPI may be called from any thread; else each op stays on the thread of its caller.
        self.is_threaded = mpi.Query_thread() >= mpi.THREAD_MULTIPLE
        #: Whether receives from any rank are probed for; see any_source.py.
        self.probes_any_source = loses_any_source(str(mpi.Get_library_version()))
        #: Of all groups, where they are; replaced, never changed: any thread walks through it.
        self.any_sources: tuple[AnySource, ...] = ()
        self.tag_limit = int(world.Get_attr(mpi.TAG_UB))
        here = processes[self.rank].boot_id
        ranks_here = sum(process.boot_id == here for process in processes)
        #: How often a wait looks before it sleeps.
        self.spins = SPINS if ranks_here <= len(os.sched_getaffinity(0)) else 0
        #: The most elements of one request.
        self.largest = _NO_LIMIT if mpi.Get_version() >= (4, 0) else _INT_LIMIT
        #: Whether it takes arrays on GPUs as they are.
        self.reads_gpus = reads_gpus(mpi)
        self.datatypes: Final = Datatypes(mpi)
        self.reductions: Final = Reductions(mpi, self.datatypes)
        self.progress: Final = Progress("distdbg-mpi-progress")
        #: Ops that nobody has seen to end, of all groups.
        self.in_flight: Final[set[object]] = set()
        #: What was given up: its memory stays, since MPI may write to it at any time.
        self._kept: list[Started] = []

    @property
    def has_large_counts(self) -> bool:
        """Whether a request may have any number of elements."""
        return self.largest >= _NO_LIMIT

    def is_too_many(self, count: int) -> bool:
        """Whether one request cannot have so many elements."""
        return count > self.largest

    def parts(self, piece: Piece) -> list[Piece]:
        """The piece in parts that one request can have."""
        return wide.parts(piece, self.largest)

    def keep(self, started: Started) -> None:
        """Keep what MPI still has, for good."""
        self._kept.append(started)

    @property
    def has_given_up(self) -> bool:
        """Whether MPI has ops that nobody waits for any more."""
        return bool(self._kept)

    def check_place(self, rank: int, world_size: int) -> None:
        """Raise when a rank or size that the program gave (-1: none) is not MPI's."""
        for name, given, own in (("rank", rank, self.rank), ("world_size", world_size, self.size)):
            if given >= 0 and given != own:
                raise UsageError(
                    f"init_process_group: {name} is {given}, and MPI says {own} "
                    f"(rank {self.rank} of {self.size})",
                    hint="with backend 'mpi' leave rank and world_size to mpiexec",
                )


_lock = threading.Lock()  # protects _library
_library: Library | None = None


def started() -> Library | None:
    """MPI of this process, if a group has needed it."""
    return _library


def start(timeout_s: float, clock: JobClock, expected_size: int = -1) -> Library:
    """Start MPI, if need be; returns when all ranks of mpiexec have come.

    `expected_size`: what the program said; 1 allows a start without mpiexec.
    """
    global _library
    with _lock:
        if _library is None:
            _library = _start(timeout_s, clock, expected_size)
        return _library


def _start(timeout_s: float, clock: JobClock, expected_size: int) -> Library:
    mpi, finalizes = _load()
    size = int(mpi.COMM_WORLD.Get_size())
    if size == 1:
        _check_alone(mpi, expected_size)
    world, request = mpi.COMM_WORLD.Idup()
    waits = f"rank {mpi.COMM_WORLD.Get_rank()}: not all {size} ranks of MPI began to use it"
    await_request(request, clock, timeout_s, waits)
    world.Set_errhandler(mpi.ERRORS_RETURN)
    world.Set_name("distdbg")
    library = Library(mpi, world, _exchange_identities(mpi, world, clock, timeout_s), finalizes)
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
    if mpi.Is_finalized():
        raise DistBackendError(
            "backend 'mpi': MPI of this process was finalized before, and cannot start again",
            hint="make the groups before MPI.Finalize()",
        )
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


def _exchange_identities(mpi: Any, world: Any, clock: JobClock, timeout_s: float) -> list[Process]:
    mine = np.zeros(_IDENTITY_NBYTES, np.uint8)
    text = json.dumps(asdict(identify_self())).encode()
    mine[: len(text)] = np.frombuffer(text, np.uint8)
    found = np.zeros((world.Get_size(), _IDENTITY_NBYTES), np.uint8)
    request = world.Iallgather([mine, mpi.BYTE], [found, mpi.BYTE])
    await_request(request, clock, timeout_s, "the ranks of MPI did not say who they are")
    return [Process(**json.loads(row.tobytes().rstrip(b"\0"))) for row in found]


def library_name(mpi: Any) -> str:
    """'Open MPI v5.0.11', 'MPICH Version: 5.0.2'."""
    text = str(mpi.Get_library_version())
    return " ".join(text.partition("\n")[0].partition(",")[0].split())
