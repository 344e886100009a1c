"""MPI of this process as all its groups use it; starting.py starts it, leaving.py leaves it at exit."""

from __future__ import annotations

from typing import Any, Final

from distdbg.errors import UsageError
from distdbg.runtime.backends.mpi.any_source import AnySource, loses_any_source
from distdbg.runtime.backends.mpi.datatypes import Datatypes
from distdbg.runtime.backends.mpi.memory import MpiBuffer, MpiRequests
from distdbg.runtime.backends.mpi.on_gpus import reads_gpus
from distdbg.runtime.backends.mpi.patience import SPINS
from distdbg.runtime.backends.mpi.reductions import Reductions
from distdbg.runtime.backends.progress import ProgressThread
from distdbg.runtime.backends.waiting import cores_of_ranks
from distdbg.runtime.rendezvous.process import ProcessIdentity

#: What MPI before version 4 can count.
_INT_LIMIT: Final = 2**31 - 1
_NO_LIMIT: Final = 2**62


class MpiLibrary:
    """MPI as all groups of this process use it."""

    def __init__(
        self, mpi: Any, world: Any, processes: list[ProcessIdentity], finalizes: bool
    ) -> None:
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
        mine = processes[self.rank]
        ranks_here = sum(process.boot_id == mine.boot_id for process in processes)
        cores = cores_of_ranks(each.pid for each in processes if each.shares_kernel(mine))
        #: How often a wait looks before it sleeps.
        self.spins = SPINS if ranks_here <= cores else 0
        #: The most elements of one request.
        self.largest = _NO_LIMIT if mpi.Get_version() >= (4, 0) else _INT_LIMIT
        #: Whether it takes arrays on GPUs as they are.
        self.reads_gpus = reads_gpus(mpi)
        self.datatypes: Final = Datatypes(mpi)
        self.reductions: Final = Reductions(mpi, self.datatypes)
        self.progress: Final = ProgressThread("distdbg-mpi-progress")
        #: Ops that nobody has seen to end, of all groups.
        self.in_flight: Final[set[object]] = set()
        #: What was given up: its memory stays, since MPI may write to it at any time.
        self._kept: list[MpiRequests] = []

    @property
    def has_large_counts(self) -> bool:
        """Whether a request may have any number of elements."""
        return self.largest >= _NO_LIMIT

    def is_too_many(self, count: int) -> bool:
        """Whether one request cannot have so many elements."""
        return count > self.largest

    def parts(self, piece: MpiBuffer) -> list[MpiBuffer]:
        """The piece in parts that one request can have."""
        return piece.parts(self.largest)

    def keep(self, started: MpiRequests) -> None:
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


def library_name(mpi: Any) -> str:
    """'Open MPI v5.0.11', 'MPICH Version: 5.0.2'."""
    text = str(mpi.Get_library_version())
    return " ".join(text.partition("\n")[0].partition(",")[0].split())
