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

    def note_queued(self, future: Any) -> None:
        """Torch has told that its device has it: that tells its end."""
        end_behind = getattr(self.pending, "end_behind", None)
        if end_behind is not None:
            end_behind(future)
        self.note_end()

    def note_done(self, error: BaseException | None) -> None:
        """Torch says that it has ended, on its device as well."""
        leave = getattr(self.pending, "left_device", None)
        if leave is not None:
            leave()
        self.note_end(error)

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
