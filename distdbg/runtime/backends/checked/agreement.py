"""Agreement: the ranks' agreement on one op of another backend, while it is in flight."""

from __future__ import annotations

from typing import Protocol

from distdbg.errors import DistError, OpTimeout
from distdbg.native import Op
from distdbg.ops.call import Call
from distdbg.runtime.backends.checked.description_table import DescriptionTable


class _Control(Protocol):
    def wait(self, agreement: Agreement, deadline_ns: int) -> None: ...


class Agreement:
    """Can be waited for by several threads."""

    __slots__ = (
        "_control",
        "_error",
        "_is_settled",
        "call",
        "handle",
        "seq",
        "started_ns",
        "table",
    )

    def __init__(
        self,
        control: _Control,
        call: Call,
        seq: int,
        table: DescriptionTable | None,
        started_ns: int,
    ) -> None:
        self._control = control
        self._error: DistError | None = None
        self._is_settled = False
        self.call = call
        self.seq = seq
        self.table = table
        self.started_ns = started_ns
        self.handle: Op | None = None

    def done(self) -> bool:
        """Whether it has ended, well or badly; never blocks."""
        return self._is_settled or self.handle is None or self.handle.done

    def wait(self, deadline_ns: int) -> None:
        """Block until all agree; raise what is wrong. At the deadline OpTimeout; it goes on."""
        if self._error is not None:
            raise self._error
        if self._is_settled:
            return
        try:
            self._control.wait(self, deadline_ns)
        except OpTimeout:
            if not self.done():
                raise  # only this wait has given up
            self._wait_ended(deadline_ns)
        except DistError as error:
            if self.done():
                self._error = error
            raise
        self._is_settled = True

    @property
    def error(self) -> DistError | None:
        """How it has ended badly, as far as a wait has found out."""
        return self._error

    def _wait_ended(self, deadline_ns: int) -> None:
        """It ended, perhaps just as the wait gave up: how, is asked again."""
        try:
            self._control.wait(self, deadline_ns)
        except DistError as error:
            self._error = error
            raise
