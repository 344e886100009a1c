"""GroupMethods: the ops as methods (op_methods.py) of a group of ours."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, overload

from distdbg.ops.call import Call
from distdbg.runtime.api.options import seconds_or_none
from distdbg.runtime.groups.group_state import GroupState
from distdbg.runtime.groups.op_methods import OpMethods, Timeout
from distdbg.runtime.handles.work import Work


class GroupMethods(OpMethods, GroupState):
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
