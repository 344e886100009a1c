"""A communicator for each group, made by its members alone.

Which MPI ranks the members are is told through the group's store: ranks of a group need not be numbered as
MPI numbers them. MPI has no form of MPI_Comm_create_group that can be given up, so it is called on a thread
where MPI allows that.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from distdbg.errors import DistBackendError, DistError, OpTimeout, UsageError, format_ranks
from distdbg.record.durations import duration_text
from distdbg.runtime.backends.checked.worker_threads import WorkerThreads
from distdbg.runtime.backends.mpi.failures import to_error
from distdbg.runtime.backends.mpi.library import MpiLibrary
from distdbg.runtime.backends.mpi.memory import MpiRequests

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store


def make_communicator(library: MpiLibrary, group: ProcessGroup, store: Store) -> Any:
    """The communicator whose ranks are those of the group; all members call it."""
    mpi = library.MPI
    mpi_ranks = _ask_ranks(library, group, store)
    everybody = library.world.Get_group()
    members = everybody.Incl(mpi_ranks)
    everybody.Free()
    # Groups that are made at the same time by different threads are distinguished by it.
    tag = zlib.crc32(group.group_name.encode()) % min(library.tag_limit, 2**15)

    def create() -> Any:
        return library.world.Create_group(members, tag)

    try:
        comm = create() if not library.is_threaded else _watched(create, group)
    except DistError:
        library.keep(MpiRequests([], [members]))  # its thread is in MPI still
        raise
    except mpi.Exception as error:
        raise to_error(error, f"making group '{group.label}'", library.name) from error
    members.Free()
    comm.Set_errhandler(mpi.ERRORS_RETURN)
    comm.Set_name(f"distdbg {group.label}"[:60])
    return comm


def _ask_ranks(library: MpiLibrary, group: ProcessGroup, store: Store) -> list[int]:
    store.set(f"mpi/{group.rank()}", str(library.rank))
    found = store.multi_get([f"mpi/{rank}" for rank in range(group.size())])
    mpi_ranks = [int(value) for value in found]
    if len(set(mpi_ranks)) != len(mpi_ranks):
        raise UsageError(
            f"group '{group.label}': its {group.size()} ranks are not {group.size()} ranks of MPI",
            details=[f"of MPI they are {mpi_ranks[:8]}"],
            hint="with backend 'mpi' each rank is a process that mpiexec started",
        )
    return mpi_ranks


def _watched(create: Callable[[], Any], group: ProcessGroup) -> Any:
    hands = WorkerThreads(group.label)
    clock = group.world.control
    deadline_ns = clock.now_ns() + int(group.timeout_s * 1e9)
    began = time.monotonic()

    def watch() -> None:
        clock.check(group=group.label)
        for rank, life in enumerate(group.members):
            if life.watched is not None and life.watched.is_dead():
                raise DistBackendError(  # `blamed` tells who it was and how it ended
                    f"group '{group.label}' was not made: rank {group.ranks[rank]} is gone"
                )
        if clock.now_ns() >= deadline_ns:
            waited_s = time.monotonic() - began
            raise OpTimeout(
                f"MPI made no communicator for group '{group.label}' within {duration_text(waited_s)}",
                missing=_others(group.ranks, group.rank()),
                waited_s=waited_s,
                group=group.label,
                details=[f"its ranks are {format_ranks(group.ranks)}"],
            )

    try:
        return hands.carry_out(create, watch)
    finally:
        hands.close(0.0)


def _others(ranks: Sequence[int], index: int) -> list[int]:
    return [rank for place, rank in enumerate(ranks) if place != index]
