"""Pairs: a communicator for each two ranks of a group, for their messages that are in no batch.

As in torch: such messages wait for none of the group's other ops, and a rank may call them in another order
beside collectives than its peer. Where the group's communicator was made with the group (device_id=), torch
has messages use that one, in one order with all else; so it is here.

    first message in a direction   a thread makes the communicator with the peer, if there is none, and calls
                                   NCCL, which connects the two: both wait for the peer. The caller goes on;
                                   who waits for the message waits until NCCL has it
    later ones                     NCCL is called at once
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from distdbg.errors import DistBackendError, DistError, format_error
from distdbg.ops.call import Kind
from distdbg.runtime.backends.checked.start_queue import StartQueue
from distdbg.runtime.backends.nccl.calling import NcclQueue
from distdbg.runtime.backends.nccl.ending import CommunicatorEnding
from distdbg.runtime.backends.nccl.library import NcclLibrary
from distdbg.runtime.backends.nccl.options import NcclOptions
from distdbg.runtime.backends.nccl.pending import NcclPending
from distdbg.runtime.backends.nccl.streams import Streams
from distdbg.runtime.backends.nccl.watchdog import watchdog

#: Makes a communicator on a device; asks the function meanwhile; with the ranks of a pair.
Open = Callable[..., Any]


class _Engine(Protocol):
    """What a pair needs of the engine of its group (engine.py)."""

    @property
    def name(self) -> str: ...
    @property
    def library(self) -> NcclLibrary: ...
    @property
    def options(self) -> NcclOptions: ...
    @property
    def ending(self) -> CommunicatorEnding: ...
    @property
    def given_up(self) -> str | None: ...

    def failed(self, error: Exception, what: str, comm: Any) -> DistBackendError:
        """What is raised for an error of NCCL or CUDA; the group is given up."""
        ...

    def forget(self, pending: NcclPending) -> None:
        """The op is over."""
        ...


class Pair:
    """This rank's side of one."""

    def __init__(self, engine: _Engine, open_it: Open, rank: int, peer: int) -> None:
        self._engine = engine
        self._open = open_it
        self._ranks = (rank, peer)
        here, there = (0, 1) if rank < peer else (1, 0)
        self._calling = NcclQueue(engine.library, engine.ending, here, 2, there)
        self._lane = StartQueue(f"{engine.name} {rank}-{peer}")
        #: NCCL gets the messages in the order of their calls; protects what follows.
        self._order: Final = threading.Lock()
        #: The directions in which NCCL has had one.
        self._connected: set[Kind] = set()
        self.comm: Any = None
        self.streams: Streams | None = None

    def start(self, pending: NcclPending, device: int) -> None:
        """Call NCCL for a message, or have the pair's thread do so."""
        with self._order:
            is_ready = self._lane.is_idle and pending.call.kind in self._connected
            if not is_ready:
                pending.queued = threading.Event()
                self._lane.put(partial(self._start_later, pending, device))
                return
        self._queue(pending)

    def close(self, patience_s: float) -> Any:
        """End the thread; returns the communicator, to be destroyed, if there is one."""
        self._lane.close(patience_s)
        comm, self.comm = self.comm, None
        return comm

    def _queue(self, pending: NcclPending) -> None:
        streams = self.streams
        assert streams is not None  # made with the communicator
        self._calling.queue(pending, streams, self.comm, is_in_block=False)
        self._calling.finish(pending, streams)

    def _start_later(self, pending: NcclPending, device: int) -> None:
        """On the pair's thread."""
        try:
            if not pending.is_over:  # its limit may be over
                self._make(pending, device)
                self._queue(pending)
                self._connected.add(pending.call.kind)
        except Exception as error:  # noqa: BLE001 - whoever waits for the message is told
            self._end_badly(pending, error)
        finally:
            if pending.queued is not None:
                pending.queued.set()

    def _make(self, pending: NcclPending, device: int) -> None:
        if self.comm is not None:
            return
        engine = self._engine
        streams = Streams(engine.library, device, engine.options.is_high_priority_stream)
        try:
            comm = self._open(device, pending.watch or _no_watch, self._ranks)
        except DistError as error:
            pending.end(error)
            # Not once more: the other has used up the id, or waits with it.
            engine.ending.give_up(format_error(error), error)
            raise
        self.comm, self.streams = comm, streams
        engine.ending.watch_over(comm)

    def _end_badly(self, pending: NcclPending, error: Exception) -> None:
        if self._engine.given_up is not None:
            pending.wait_on_host()  # which knows better why NCCL failed
        elif isinstance(error, DistError):
            watchdog.remove(pending)  # NCCL has not got it, and the group goes on
            pending.end(error)
        else:
            pending.end(self._engine.failed(error, pending.what, self.comm))


def _no_watch() -> None:
    """Of a group that nothing is put around."""
