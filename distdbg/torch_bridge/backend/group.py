"""DistdbgProcessGroup: a group of torch's whose ops are Calls on one of ours.

What all ranks call together is in collectives.py; here is who the group is, messages, coalesced blocks, and
the making and leaving of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as torch_dist

from distdbg.errors import UsageError
from distdbg.runtime.api.options import seconds_or_none
from distdbg.runtime.groups.coalesced import Collector, start_all
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.process.destroy import leave_group
from distdbg.torch_bridge.backend.collectives import Collectives
from distdbg.torch_bridge.backend.work import DistdbgWork, DoneWork

Tensor = Any
Work = DistdbgWork | DoneWork

_PrefixStore: Any = getattr(torch_dist, "PrefixStore")  # noqa: B009 - not exported to type checkers


class DistdbgProcessGroup(Collectives):
    """A group on the backend "distdbg"."""

    #: Torch up to 2.5 asks where it makes a group: whether that can be split off the default one, as NCCL's.
    supports_splitting = False

    def __init__(self, group: ProcessGroup, store: Any, is_like_gloo: bool) -> None:
        # With a store as the first argument torch makes an object that is not this one.
        super().__init__(group.rank(), group.size())
        self.group = group
        self._store = store
        self._rank = group.rank()
        self._size = group.size()
        self._name = group.group_name
        self._desc = group.group_desc
        self._done = DoneWork()
        self._is_like_gloo = is_like_gloo
        self._adds_as_gloo = is_like_gloo and self._size > 2
        #: torch keeps a plain ProcessGroup of what a method returns, unless somebody keeps the object.
        self._parts: list[DistdbgProcessGroup] = []

    # -------------------------------------------------------------------------- who it is

    def getBackendName(self) -> str:
        """Return the name of the backend."""
        return "distdbg"

    def name(self) -> str:
        """Return the name of the backend."""
        return "distdbg"

    def rank(self) -> int:
        """Return this rank's number in the group."""
        return self._rank

    def size(self) -> int:
        """Return how many ranks the group has."""
        return self._size

    def getRank(self) -> int:
        """Return this rank's number in the group, to C++."""
        return self._rank

    def getSize(self) -> int:
        """Return how many ranks the group has, to C++."""
        return self._size

    def setGroupName(self, name: str) -> None:
        """Take the name by which C++ finds the group."""
        self._name = name

    def getGroupName(self) -> str:
        """Return the name by which C++ finds the group."""
        return self._name

    # Up to torch 2.5 those two are not asked by the Python names of them.
    _set_group_name = setGroupName
    group_name = property(getGroupName)

    def setGroupDesc(self, desc: str) -> None:
        """Take what messages call the group."""
        self._desc = desc
        if desc:
            self.group.group_desc = desc

    def getGroupDesc(self) -> str:
        """Return what messages call the group."""
        return self._desc

    def _get_backend(self, device: Any) -> DistdbgProcessGroup:
        """Return what carries out ops on this device: torch 2.14 asks it what it can do."""
        return self

    def get_group_store(self) -> Any:
        """Return torch's store of this group."""
        return self._store

    # ---------------------------------------------------------------------- point to point

    recvAnysource = Collectives.recv_anysource

    # -------------------------------------------------------------------------- coalescing

    def _start_coalescing(self, device: Any = None) -> None:
        # It never raises: torch would then put every later op of the group aside, and say nothing.
        if self.group.collector is None:
            self.group.collector = Collector()

    def _end_coalescing(self, device: Any = None) -> Work:
        collector, self.group.collector = self.group.collector, None
        if collector is None:
            raise UsageError("_end_coalescing was called without _start_coalescing")
        return DistdbgWork(start_all(self.group, collector.calls))

    startCoalescing = _start_coalescing
    endCoalescing = _end_coalescing

    # ------------------------------------------------------------------- the group itself

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: ours counts from its first op, on all ranks alike."""

    def _get_sequence_number_for_group(self) -> int:
        return self.group.issued()

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the limit of ops that bring none of their own."""
        self.group.set_timeout(timeout)

    _set_default_timeout = set_timeout

    def _verify_work_timeout(self, work: Any, timeout: timedelta) -> bool:
        return seconds_or_none(timeout) == self.group.timeout_s

    def abort(self) -> None:
        """Break the group: ops in flight end with an error on every rank."""
        self.group.abort()

    def shutdown(self) -> None:
        """Leave the group; with the default group, leave all and free what they hold."""
        leave_group(self.group)

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[object] | None = None,
    ) -> DistdbgProcessGroup | None:
        """Make a group of some group ranks of this one; exactly these ranks get it."""
        if self._rank not in ranks:
            return None
        made = self.group.split_group(ranks, timeout, None, group_name, group_desc)
        return self._keep(made, made.group_name)

    splitGroup = split_group

    def merge_remote_group(
        self,
        store: Any,
        size: int,
        timeout: timedelta | None = None,
        group_name: str | None = None,
        group_desc: str | None = None,
    ) -> DistdbgProcessGroup:
        """Make one group of this one and others that call it with the same store and size."""
        from distdbg.torch_bridge.store import TorchStore

        made = self.group.merge_remote_group(
            TorchStore(store), size, timeout, group_name, group_desc
        )
        return self._keep(made, made.group_name)

    mergeRemoteGroup = merge_remote_group

    def _keep(self, group: ProcessGroup, name: str) -> DistdbgProcessGroup:
        store = _PrefixStore(f"{name}/", self._store)
        part = DistdbgProcessGroup(group, store, self._is_like_gloo)
        self._parts.append(part)
        return part

    def __repr__(self) -> str:
        return repr(self.group)
