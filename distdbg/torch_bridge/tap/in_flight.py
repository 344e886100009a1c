"""An op that torch has, from its start until its end is known."""

from __future__ import annotations

import weakref
from typing import Any

from distdbg.ops.call import Kind
from distdbg.ops.engine import Pending
from distdbg.torch_bridge.tap.calls import TapCall


class InFlight:
    """One op that torch has, found again by its Work."""

    __slots__ = ("call", "is_taken", "pending", "work")

    def __init__(self, call: TapCall, pending: Pending, work: weakref.ref[Any]) -> None:
        self.call = call
        self.pending = pending
        self.work = work
        #: Somebody waits for it, and records its end.
        self.is_taken = False

    def note_end(self, error: BaseException | None = None) -> None:
        """Torch has told its end."""
        note = getattr(self.pending, "note_end", None)
        if note is not None:
            note(error)
        # Whoever waits for it later brings the Work along; until then it must not live because of us.
        self.call.pending.release()
        self.call.work = self.call.result = None
        if self.call.kind < Kind.SEND:  # who waits for a message compares it then
            self.call.inputs = self.call.outputs = ()
