"""OnDevice: what the CPU engine asks of what carries out ops on arrays of a GPU (gpu/beside_host.py)."""

from __future__ import annotations

from typing import Any, Protocol

from distdbg.ops.call import Call
from distdbg.ops.engine import Pending


class OnDevice(Protocol):
    """The ops of one group on arrays of a GPU; `engine` is its CPU engine."""

    def try_run(self, engine: Any, call: Call) -> int | None:
        """Carry it out; None: the host does, with the arrays as a whole."""
        ...

    def try_submit(self, engine: Any, call: Call) -> Pending | None:
        """Start it; None: as for try_run."""
        ...

    def set_timeout(self, timeout_s: float) -> None:
        """See Engine.set_timeout."""
        ...

    def set_level(self, level: int) -> None:
        """See Engine.set_level."""
        ...

    def abort(self, reason: str) -> None:
        """See Engine.abort."""
        ...

    def skip_number(self) -> None:
        """Other ranks have an op on a GPU that this one had on the host: all were told."""
        ...

    def leave_because(self, why: str, at_once: bool) -> None:
        """Say why this rank leaves."""
        ...

    def close(self) -> None:
        """See Engine.close."""
        ...
