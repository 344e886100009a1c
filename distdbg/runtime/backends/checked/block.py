"""Block: ops that another backend gets together, each after its agreement at DETAIL."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from distdbg.errors import DistError
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Engine, Pending
from distdbg.runtime.backends.checked.agreement import Agreement
from distdbg.runtime.backends.checked.checked_pending import CheckedPending, OpWatch, PendingChecks
from distdbg.runtime.backends.checked.message_way import MessageWay
from distdbg.runtime.handles.work import NO_DEADLINE


class BlockChecks(PendingChecks, Protocol):
    """What the ops of a block need of the check of their group (checked_engine.py)."""

    engine: Engine

    def begin_agreement(self, call: Call) -> Agreement:
        """Start to agree on an op."""
        ...

    def way_of(self, call: Call) -> MessageWay:
        """By which communicator a message of now goes."""
        ...

    def note_disagreed(self, error: DistError) -> None:
        """An agreement has failed before its op was started."""
        ...

    def start(self, call: Call, watch: OpWatch | None = None) -> Pending:
        """Give the op to the backend."""
        ...


class Block:
    """What one thread submits between begin_block() and end_block()."""

    def __init__(self, engine: BlockChecks) -> None:
        self._engine = engine
        self._ops: list[CheckedPending] = []
        #: Whether one communicator has its messages, and what waits in the lane before them.
        self.is_in_order = False

    @property
    def has_agreements(self) -> bool:
        """Whether ranks are asked before its ops; not of messages, which have headers."""
        return any(op.call.kind < Kind.SEND for op in self._ops)

    def add(self, call: Call) -> CheckedPending:
        """An op that waits for the end of the block."""
        pending = CheckedPending(self._engine, call, None, None)
        self._ops.append(pending)
        self.is_in_order = self.is_in_order or self._engine.way_of(call).is_in_order
        return pending

    def begin_agreements(self) -> None:
        """Number the ops. They start in this order: `order` is held until they have, or are queued."""
        ops, self._ops = self._ops, []
        for op in ops:
            try:
                op.agree(self._engine.begin_agreement(op.call))
                self._ops.append(op)
            except DistError as error:
                op.fail(error)

    def wait_for_turn(self) -> None:
        """They start after ops that wait for their agreements, without any of their own."""
        for op in self._ops:
            op.is_in_turn = True

    def start_in_turn(self) -> None:
        """Start all, on the lane."""
        self._start(self._ops, is_agreed=True)

    def start_agreed(self) -> None:
        """Wait for all agreements, then start what all mean; on the lane."""
        agreed = [op for op in self._ops if self._has_agreed(op)]
        self._start(agreed, is_agreed=True)

    def start_now(self) -> list[Agreement]:
        """Start all; returns the agreements that nobody has waited for."""
        self._start(self._ops, is_agreed=False)
        return [op.agreement for op in self._ops if op.agreement is not None]

    def _has_agreed(self, op: CheckedPending) -> bool:
        assert op.agreement is not None  # a block has collectives or messages, not both
        try:
            op.agreement.wait(NO_DEADLINE)
        except DistError as error:
            self._engine.note_disagreed(error)
            op.fail(error)
            return False
        return True

    def _start(self, ops: list[CheckedPending], is_agreed: bool) -> None:
        if not ops:
            return
        backend: Any = self._engine.engine
        started = []
        try:
            backend.begin_block()
        except Exception as error:  # noqa: BLE001 - another library's, and this may be the lane
            for op in ops:
                op.fail(self._engine.failed(op.call, error))
            return
        try:
            for op in ops:
                try:
                    op.watch.begin(None if is_agreed else op.agreement)
                    started.append((op, self._engine.start(op.call, op.watch)))
                except DistError as error:
                    op.fail(error)
        finally:
            with suppress(Exception):  # each op of the block has it
                backend.end_block()
        for op, foreign in started:
            op.go(foreign, None if is_agreed else op.agreement)
