"""MixedWatch: finds that some ranks give arrays on the host to an op and others arrays on a GPU.

Both wait in memory of their own, and neither comes to the other. A rank that waits with arrays on a GPU
looks into the records of those that are missing: all ranks of a correct program issue the ops of a group in
one order, so one that waits in an op on the host which this rank had not issued, and has issued fewer on a
GPU, is where this one should be too. Without records it is told by the limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from distdbg.errors import CollectiveError, MismatchError, format_ranks
from distdbg.native import Group
from distdbg.ops.call import Call
from distdbg.runtime.backends.failures import BROKEN, DIFFERS
from distdbg.runtime.members.absent import issued, recorded, waits_in

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup

#: Between two looks; an op that waits in two of them is looked at.
_LOOK_S: Final = 0.1
#: The thread sleeps after so many looks at nothing.
_IDLE_LOOKS: Final = 10


class IssuedRecord(NamedTuple):
    """An op in the record, as it was issued; called when it starts."""

    started: Callable[[], object]
    #: In the record of the group's ops on a GPU, this one included.
    on_gpu: int
    #: Before it.
    on_host: int
    #: The group's memory for those.
    host: Group
    #: Told how long the device took, before the op ends.
    measured: Callable[[int], object]

    def __call__(self) -> object:
        return self.started()


class MixedWatch:
    """Of one group on one rank. One op at a time waits for the others."""

    def __init__(self, group: ProcessGroup, on_found: Callable[[str], object]) -> None:
        self._group = group
        #: Told the difference; ends all waits.
        self._on_found = on_found
        #: What waits, by itself: (call, issued).
        self._waiting: tuple[Call, IssuedRecord] | None = None
        #: What this rank's waits are ended with.
        self.found: MismatchError | None = None
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, call: Call) -> None:
        """The op waits for the other ranks from now on."""
        if not isinstance(call.side, IssuedRecord) or self._group.world.run_folder is None:
            return
        self._waiting = (call, call.side)
        if self._thread is None:
            name = "distdbg-gpu-mixed"
            self._thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._thread.start()
        if not self._wake.is_set():
            self._wake.set()

    def end(self) -> None:
        """All have come, or the op has failed."""
        self._waiting = None

    def raise_found(self) -> None:
        """Raise what was found, here or by another rank, while this one waits for the first op on a GPU."""
        if self.found is not None:
            raise self.found
        waiting = self._waiting
        cause = None if waiting is None else waiting[1].host.cause()
        if waiting is not None and cause is not None:
            what = f"{waiting[0].name or waiting[0].kind.label} on group '{self._group.label}'"
            kind = MismatchError if DIFFERS in cause[4] else CollectiveError
            told = cause[4] if DIFFERS in cause[4] else f"{what} cannot run: {cause[4]}"
            raise kind(told, kind=waiting[0].kind.label, group=self._group.label, details=[BROKEN])

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        seen, idle = None, 0
        while not self._closed.wait(_LOOK_S):
            waiting = self._waiting
            idle = 0 if waiting is not None else idle + 1
            if idle > _IDLE_LOOKS:
                self._wake.clear()
                # After that: what begins or closes meanwhile has been set before it wakes this thread.
                if self._waiting is None and not self._closed.is_set():
                    self._wake.wait()
                idle = 0
            elif waiting is not None and waiting is seen and self._look(*waiting):
                return
            seen = waiting

    def _look(self, call: Call, mine: IssuedRecord) -> bool:
        group = self._group
        others = [rank for rank in range(group.size()) if rank != group.rank()]
        on_host = [rank for rank in others if self._is_on_host(rank, mine)]
        if not on_host or self._waiting is None:
            return False
        names = [group.ranks[rank] for rank in on_host]
        me = group.ranks[group.rank()]
        what = f"{call.name or call.kind.label} on group '{group.label}'"
        told = f"{what} {DIFFERS}on a GPU on rank {me}, on the host on {_ranks(names)}"
        details = [
            f"rank {group.ranks[rank]}: {place}"
            for rank in on_host
            if (place := recorded(group, rank)) is not None
        ]
        self.found = MismatchError(
            told,
            kind=call.kind.label,
            group=group.label,
            ranks=[me, *names],
            details=[*details, BROKEN],
            hint="give arrays on a GPU on all ranks, or on none",
        )
        self._on_found(told)
        return True

    def _is_on_host(self, rank: int, mine: IssuedRecord) -> bool:
        name = self._group.group_name
        # In this order: what it issued on a GPU before, it had issued when the second is read.
        seq = waits_in(self._group, rank, name)
        if seq is None or seq <= mine.on_host:
            return False
        return (issued(self._group, rank, f"{name}/gpu") or 0) < mine.on_gpu


def _ranks(names: list[int]) -> str:
    return f"rank {names[0]}" if len(names) == 1 else f"ranks {format_ranks(names)}"
