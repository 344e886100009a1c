"""The ops as methods of our own groups: those of all ranks (collective_methods.py), and messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, overload

from distdbg.ops.call import ANY_SOURCE, Call
from distdbg.runtime.api import calls
from distdbg.runtime.api.arguments import Array
from distdbg.runtime.api.options import seconds_or_none
from distdbg.runtime.groups.collective_methods import CollectiveMethods, Timeout
from distdbg.runtime.groups.group_state import GroupState
from distdbg.runtime.handles.work import Work


class GroupMethods(CollectiveMethods, GroupState):
    """What ProcessGroup is without a way to carry out a Call: its `run` is that."""

    @overload
    def run(self, call: Call, async_op: Literal[False] = False) -> int: ...
    @overload
    def run(self, call: Call, async_op: Literal[True]) -> Work: ...
    @overload
    def run(self, call: Call, async_op: bool) -> Work | int: ...

    @abstractmethod
    def run(self, call: Call, async_op: bool = False) -> Work | int:
        """Give one op to the engine. Blocking: the group rank a recv came from, else -1."""

    def _start(self, call: Call, opts: Any = None) -> Work:
        return self.run(call, True)

    def monitored_barrier(self, timeout: Timeout = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks; an error names those that did not come."""
        from distdbg.runtime.members.store_barrier import (
            run_monitored_barrier,
        )  # for a faster start

        run_monitored_barrier(self, seconds_or_none(timeout))

    def send(self, tensors: Sequence[Array], dstRank: int, tag: int) -> Work:
        """Send to group rank dstRank."""
        return self._start(calls.send(self.size(), self._only(tensors, "send"), dstRank, tag))

    def recv(self, tensors: Sequence[Array], srcRank: int, tag: int) -> Work:
        """Receive from group rank srcRank."""
        return self._start(calls.recv(self.size(), self._only(tensors, "recv"), srcRank, tag))

    def recv_anysource(self, arg0: Sequence[Array], arg1: int) -> Work:
        """Receive from whoever sends with this tag; the Work knows from whom."""
        return self.recv(arg0, ANY_SOURCE, arg1)
