"""TorchPending: torch's Work as a Pending."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from distdbg.ops.call import Kind
from distdbg.runtime.handles.work import NO_DEADLINE

#: Of gloo these cannot be waited for in slices: a wait that gives up breaks the connection, or
#: the Work does not know that it has ended.
_NOT_IN_SLICES = (Kind.SEND, Kind.RECV, Kind.REDUCE_SCATTER)


def has_given_up(error: RuntimeError) -> bool:
    """Whether it says that a wait was over before its op."""
    return "timed out" in str(error)[:80].lower()


def can_be_sliced(kind: Kind) -> bool:
    """Whether a wait for an op of this kind may give up and be tried again."""
    return kind not in _NOT_IN_SLICES


class TorchPending:
    """One op that torch has."""

    __slots__ = ("_kind", "_peer", "_real_wait", "error", "has_ended", "is_released", "work")

    def __init__(self, work: Any, kind: Kind, peer: int, real_wait: Any) -> None:
        self.work = work
        self._kind = kind
        self._peer = peer
        self._real_wait = real_wait
        #: Somebody has waited for it.
        self.has_ended = False
        #: Torch has told its end, and nobody has waited yet.
        self.is_released = False
        self.error: Exception | None = None

    def release(self) -> None:
        """It has ended: hold the Work no longer."""
        self.is_released = True
        self.work = None

    def attach(self, work: Any) -> None:
        """Its caller waits for it, with this Work."""
        self.work = work

    @property
    def can_be_sliced(self) -> bool:
        """Whether a wait may give up and be tried again."""
        return can_be_sliced(self._kind)

    def done(self) -> bool:
        """Whether torch says that it has ended."""
        work = self.work  # another thread may release it
        return self.has_ended or self.is_released or work is None or work.is_completed()

    def wait(self, deadline_ns: int) -> None:
        """Wait in torch; a deadline is not for here, see TapEngine."""
        if self.error is not None:
            raise self.error
        work = self.work
        if self.has_ended or work is None:
            return
        assert deadline_ns == NO_DEADLINE or self.done()
        self._real_wait(work)
        self.has_ended = True

    def wait_slice(self, seconds: float) -> bool:
        """Wait so long at most; whether it has ended."""
        work = self.work
        if self.has_ended or work is None:
            return True
        try:
            self._real_wait(work, timedelta(seconds=seconds))
        except RuntimeError as error:
            if not has_given_up(error):
                raise
            if not work.is_completed():
                return False
            self._real_wait(work)  # it ended as the wait gave up: how, is asked again
        self.has_ended = True
        return True

    def source_rank(self) -> int:
        """Whose message it was."""
        work = self.work
        if self._kind is not Kind.RECV or work is None:
            return -1
        return self._peer if self._peer >= 0 else int(work._source_rank())
