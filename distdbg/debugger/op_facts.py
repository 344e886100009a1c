"""OpFacts: an op as breakpoint rules see it; expensive fields are computed on demand."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from distdbg.errors import UsageError
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.ops.sites import call_site
from distdbg.runtime.arrays.buffers import as_input

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup


class CallFacts:
    """Implements Facts (distdbg/control/breakpoints.py) for one call."""

    def __init__(self, group: ProcessGroup, call: Call, seq: int) -> None:
        self._group = group
        self._call = call
        self._site = ""
        self.seq = seq

    @property
    def rank(self) -> int:
        """The number of this rank in the job."""
        return self._group.ranks[self._group.rank()]

    @property
    def kind(self) -> str:
        """'all_reduce'."""
        return self._call.kind.label

    @property
    def name(self) -> str:
        """The function that was called, as far as it is known."""
        variant = self._call.variant
        if variant.is_another_function:
            return variant.label
        return self._call.name or self._call.kind.label

    @property
    def group(self) -> tuple[str, ...]:
        """What the group is called, in messages and by its program."""
        return tuple({self._group.label: None, self._group.group_name: None})

    @cached_property
    def nbytes(self) -> int:
        """The bytes of all inputs or of all outputs, whichever are more."""
        return max(_nbytes(self._call.inputs), _nbytes(self._call.outputs))

    @cached_property
    def dtype(self) -> str:
        """The dtype of the first array; '' without one."""
        arrays = [*self._call.inputs, *self._call.outputs]
        return _dtype(arrays[0]) if arrays else ""

    @property
    def peer(self) -> int | None:
        """The rank in the job at the other end of a message."""
        call = self._call
        if call.kind < Kind.SEND or call.peer < 0:
            return None
        return self._group.ranks[call.peer]

    @property
    def tag(self) -> int | None:
        return self._call.tag if self._call.kind >= Kind.SEND else None

    @property
    def comm(self) -> str:
        """The name that `record_comm` gave."""
        recorder = self._group.world.recorder
        return "" if recorder is None else recorder.comm

    @property
    def site(self) -> str:
        """The user's line."""
        if not self._site:  # cached_property would be the nearest line outside of this package
            self._site = call_site()
        return self._site

    @property
    def words(self) -> str:
        """'all_reduce #42 on group 'dp'', 'send #3 to rank 1 on group 'world''."""
        number = f" #{self.seq}" if self.seq > 0 else ""
        to = ""
        if self.peer is not None:
            to = f" {'to' if self._call.kind is Kind.SEND else 'from'} rank {self.peer}"
        return f"{self.name}{number}{to} on group '{self._group.label}'"


def _nbytes(arrays: Iterable[Any]) -> int:
    return sum(map(_nbytes_of, arrays))


def _nbytes_of(array: Any) -> int:
    nbytes = getattr(array, "nbytes", None)
    if nbytes is not None:
        return int(nbytes)
    try:
        return as_input(array).nbytes
    except UsageError:  # what is wrong with it is the op's to say
        return 0


def _dtype(array: Any) -> str:
    dtype = getattr(array, "dtype", None)
    if dtype is not None:
        return str(dtype).removeprefix("torch.")
    try:
        return Dtype(as_input(array).dtype).label
    except UsageError:
        return ""
