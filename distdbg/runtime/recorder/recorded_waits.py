"""Records calls that may wait outside of the engines: new_group, monitored_barrier.

Without them the record of a rank that waits there would show the op before, long ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING

from distdbg.errors import DistError, JobAborted
from distdbg.native import Form
from distdbg.record.format import Aside, Flag, Status
from distdbg.record.forms import to_ranges, write_form
from distdbg.record.writing import status_of, write_error

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup


class aside:
    """A block that is recorded as one op of `group`, without a number among its collectives.

    A class, not a generator: the record takes the first line outside this package as the call site,
    and that would be contextlib's.
    """

    __slots__ = ("_group", "_kind", "_members", "_name", "_op", "_seq")

    def __init__(
        self,
        group: ProcessGroup,
        kind: Aside,
        seq: int,
        name: str | None = None,
        members: Iterable[int] | None = None,
    ) -> None:
        """`members`: the global ranks that it waits for, where those are not the whole group."""
        self._group = group
        self._kind = kind
        self._seq = seq
        self._name = name or kind.label
        self._members = members

    def __enter__(self) -> None:
        recorder = self._group.world.recorder
        if recorder is None:
            self._op = None
            return
        members = () if self._members is None else to_ranges(self._members)
        text = write_form(name=self._name, kind=self._kind.label, members=members)
        form = Form(text, self._name, int(self._kind), 0, 0)
        number = self._group.record_number
        self._op = recorder.begin(number, form, self._seq, 0, -1, int(Flag.ASIDE))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, JobAborted) and not error.kind:
            error.kind, error.seq, error.group = self._name, self._seq, self._group.label
            error.details.append(f"this rank was in {self._name}")
        if self._op is None:
            return
        number = self._op.number
        self._op.ended(int(Status.OK if error is None else status_of(error)), -1)
        recorder = self._group.world.recorder
        if isinstance(error, DistError) and recorder is not None:
            write_error(recorder, self._group.record_number, number, error)
