"""What an Engine or a Pending that stands around another one hands on."""

from __future__ import annotations

from distdbg.ops.engine import Engine, Pending, await_end


class EngineAround:
    """All of an Engine but its ops; its `__init__` sets `inner`."""

    inner: Engine

    def set_timeout(self, timeout_s: float) -> None:
        """Hand it on."""
        self.inner.set_timeout(timeout_s)

    def set_level(self, level: int) -> None:
        """Hand it on."""
        self.inner.set_level(level)

    def abort(self, reason: str) -> None:
        """Hand it on."""
        self.inner.abort(reason)

    def close(self) -> None:
        """Hand it on."""
        self.inner.close()


class PendingAround:
    """All of a Pending but `wait`; its `__init__` sets `inner`."""

    __slots__ = ("inner",)

    inner: Pending

    @property
    def number(self) -> int:
        """The number of the op in the record; 0: not known."""
        number = getattr(self.inner, "number", 0)
        return number if isinstance(number, int) else 0

    def done(self) -> bool:
        """Whether the op has ended."""
        return self.inner.done()

    def await_end(self, deadline_ns: int) -> None:
        """Block until the op has ended or the deadline has come; what it came to, wait() says."""
        await_end(self.inner, deadline_ns)

    def source_rank(self) -> int:
        """Hand it on."""
        return self.inner.source_rank()
