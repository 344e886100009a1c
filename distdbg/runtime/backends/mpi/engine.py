"""MpiEngine: one group's ops as non-blocking ops of MPI, each with a deadline.

What is compared between ranks is put around it, as around any other backend (backends/checked).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from distdbg.config import read_setting
from distdbg.control.clock import JobClock
from distdbg.errors import DistBackendError, DistError, UsageError
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Pending
from distdbg.runtime.api.arguments import check_arrays
from distdbg.runtime.arrays.device_wait import wait_for_device
from distdbg.runtime.backends.mpi import collectives, messages, starting
from distdbg.runtime.backends.mpi.any_source import AnySource
from distdbg.runtime.backends.mpi.collectives import MpiGroup
from distdbg.runtime.backends.mpi.communicators import make_communicator
from distdbg.runtime.backends.mpi.failures import to_error
from distdbg.runtime.backends.mpi.on_gpus import goes_direct
from distdbg.runtime.backends.mpi.pending import MpiPending
from distdbg.runtime.backends.staging import StagedCall, StagedPending, is_for_device
from distdbg.runtime.handles.work import NO_DEADLINE
from distdbg.runtime.process.world import world_of

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store

#: The check around it knows better who is late, and looks half a second after the limit.
_SLACK_NS: Final = 2_000_000_000


class MpiEngine:
    """Implements Engine; see distdbg/ops/engine.py."""

    #: Elements are moved, so ranks may differ in the order of memory.
    distdbg_reads_strides = True

    def __init__(
        self, mpi_group: MpiGroup, name: str, timeout_s: float, clock: JobClock, is_alone: bool
    ) -> None:
        self.mpi_group = mpi_group
        #: What messages call the group.
        self.name = name
        self.clock = clock
        #: Why the group cannot be used any more.
        self.given_up: str | None = None
        self._timeout_ns = int(timeout_s * 1e9)
        #: Whether nothing is put around it.
        self._is_alone = is_alone
        self._slack_ns = 0 if is_alone else _SLACK_NS
        #: Collectives of one communicator start in one order.
        self._order = threading.Lock()
        self._in_flight: set[MpiPending] = set()
        self._is_closed = False

    @property
    def distdbg_is_bound_to_thread(self) -> bool:
        """Where MPI may not be called from any thread."""
        return not self.mpi_group.library.is_threaded

    def run(self, call: Call) -> int:
        """Start and wait."""
        staged = self._staged(call)
        pending = self._start(call if staged is None else staged.call)
        pending.wait(NO_DEADLINE)
        if staged is not None:
            staged.bring_back()
        return pending.source_rank()

    def run_watched(self, call: Call, watch: Callable[[], None]) -> int:
        """The same; what `watch` raises while it waits ends the op here."""
        staged = self._staged(call)
        pending = self._start(call if staged is None else staged.call)
        pending.wait_watched(watch)
        if staged is not None:
            staged.bring_back()
        return pending.source_rank()

    def submit(self, call: Call) -> Pending:
        """Start; a thread looks after it, or whoever waits."""
        staged = self._staged(call)
        pending = self._start(call if staged is None else staged.call)
        if self.mpi_group.library.is_threaded:
            self.mpi_group.library.progress.add(pending)
        return pending if staged is None else StagedPending(pending, staged)

    def check(self, call: Call) -> None:
        """Raise what is wrong with the call on this rank alone; asked before others are involved."""
        starting.check_running(self.mpi_group.library.MPI)
        check_arrays(call, also_on_gpu=True)
        messages.check_tag(call, self.mpi_group.library.tag_limit)

    def set_timeout(self, timeout_s: float) -> None:
        """Set the limit for ops that bring none of their own."""
        self._timeout_ns = int(timeout_s * 1e9)

    def set_level(self, level: int) -> None:
        """At OFF nobody else looks at the limit of an op."""
        self._slack_ns = 0 if self._is_alone or level == 0 else _SLACK_NS

    def abort(self, reason: str) -> None:
        """End all waits on this rank. MPI has no such thing: other ranks are told by the check."""
        self.give_up(reason)

    def close(self) -> None:
        """Let what is in flight end (each op has a deadline), then free the communicator."""
        if self._is_closed:
            return
        self._is_closed = True
        for pending in list(self._in_flight):
            with suppress(DistError):  # whoever waits for that Work is told
                pending.wait(NO_DEADLINE)
        library = self.mpi_group.library
        library.any_sources = tuple(
            [each for each in library.any_sources if each is not self.mpi_group.any_source]
        )
        if self.given_up is None and not library.MPI.Is_finalized():
            with suppress(library.MPI.Exception):  # nothing comes after it here
                self.mpi_group.comm.Free()

    def give_up(self, reason: str) -> None:
        """No op can end any more, nor start."""
        self.given_up = self.given_up or reason or "the group was aborted"

    def ended(self, pending: MpiPending) -> None:
        """Nobody has to look after it any more."""
        self._in_flight.discard(pending)
        self.mpi_group.library.in_flight.discard(pending)

    def _staged(self, call: Call) -> StagedCall | None:
        """The call on the host, where its arrays are on a GPU and MPI does not take them there."""
        if not is_for_device(call):
            return None
        self.check(call)
        wait_for_device([*call.inputs, *call.outputs])
        return None if goes_direct(call, self.mpi_group.library) else StagedCall(call)

    def _start(self, call: Call) -> MpiPending:
        if self._is_closed:
            raise UsageError(f"{call.kind.label} on group '{self.name}', which was destroyed")
        self.check(call)
        what = f"{call.name or call.kind.label} on group '{self.name}'"
        if self.given_up is not None:
            raise DistBackendError(
                f"{what} cannot run: {self.given_up.splitlines()[0]}",
                details=["the group is unusable; destroy it and create a new one"],
            )
        start = messages.start if call.kind >= Kind.SEND else collectives.start
        limit_ns = self._timeout_ns if call.timeout_s is None else int(call.timeout_s * 1e9)
        with self._order:
            try:
                begun = start(self.mpi_group, call)
            except self.mpi_group.library.MPI.Exception as error:
                reported = to_error(error, what, self.mpi_group.library.name)
                self.give_up(reported.what)
                raise reported from error
        pending = MpiPending(self, call, begun, limit_ns + self._slack_ns)
        self._in_flight.add(pending)
        self.mpi_group.library.in_flight.add(pending)
        return pending


def make_engine(group: ProcessGroup, store: Store) -> MpiEngine:
    """Make the engine of a group; all its members do."""
    mpi_library = starting.started()
    world = world_of(group).default
    if mpi_library is None and world is not None and group.size() < world.size():
        raise UsageError(
            f"group '{group.label}': MPI is started by all ranks together, and these are "
            f"{group.size()} of {world.size()}",
            hint="init_process_group('mpi'), or first make a group of all ranks with backend 'mpi'",
        )
    mpi_library = starting.start(group.timeout_s, group.world.control, group.size())
    comm: Any = make_communicator(mpi_library, group, store)
    is_alone = group.size() == 1 or bool(read_setting("DISTDBG_UNWRAPPED"))
    any_source = None
    if mpi_library.probes_any_source:
        any_source = AnySource(mpi_library.MPI, comm)
        mpi_library.any_sources += (any_source,)
    mpi_group = MpiGroup(mpi_library, comm, group.rank(), group.size(), any_source)
    return MpiEngine(mpi_group, group.label, group.timeout_s, group.world.control, is_alone)
