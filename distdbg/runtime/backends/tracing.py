"""TracingEngine: logs each op of a group when it is issued and when it has ended.

It wraps the group's engine only while the log level needs it, so it costs nothing otherwise. The end of an
asynchronous op is logged when the program waits for it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from distdbg.errors import DistError
from distdbg.log.log_levels import LogLevel
from distdbg.log.logs import get_logger
from distdbg.ops.around import EngineAround, PendingAround
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Engine, Pending

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup

_log = get_logger("ops")

_TRACE = LogLevel.TRACE
#: Arrays of one side of a call that a line shows.
_SHOWN = 4


class TracingEngine(EngineAround):
    """Implements Engine around another one; see distdbg/ops/engine.py."""

    def __init__(self, inner: Engine, group: ProcessGroup) -> None:
        self.inner = inner
        self._group = group
        self._count = 0

    def run(self, call: Call) -> int:
        """Carry out `call`, between two lines."""
        line = self._issue(call, "")
        try:
            source = self.inner.run(call)
        except BaseException as error:
            line.end(error)
            raise
        line.end(None)
        return source

    def submit(self, call: Call) -> Pending:
        """Start `call`; the second line is written when its end is noticed."""
        line = self._issue(call, ", async")
        try:
            return TracedPending(self.inner.submit(call), line)
        except BaseException as error:
            line.end(error)
            raise

    def _issue(self, call: Call, how: str) -> _Line:
        self._count += 1
        group = self._group
        name = f"{call.name or call.kind.label} on group '{group.label}' (line {self._count})"
        rank = group.ranks[group.rank()]
        _log.log(_TRACE, "%s issued: %s%s", name, _show(call, group), how, rank=rank)
        return _Line(name, rank)


class _Line:
    """What the line at the end of an op needs."""

    __slots__ = ("_is_ended", "_name", "_rank", "_started_ns")

    def __init__(self, name: str, rank: int) -> None:
        self._name = name
        self._rank = rank
        self._started_ns = time.monotonic_ns()
        self._is_ended = False

    def end(self, error: BaseException | None) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        took_ms = (time.monotonic_ns() - self._started_ns) / 1e6
        if error is None:
            _log.log(_TRACE, "%s ended after %.3f ms", self._name, took_ms, rank=self._rank)
            return
        what = error.what if isinstance(error, DistError) else type(error).__name__
        _log.log(_TRACE, "%s failed after %.3f ms: %s", self._name, took_ms, what, rank=self._rank)


class TracedPending(PendingAround):
    """Implements Pending around another one."""

    __slots__ = ("_line",)

    def __init__(self, inner: Pending, line: _Line) -> None:
        self.inner = inner
        self._line = line

    def done(self) -> bool:
        """Whether the op has ended; then also how is asked, for the line."""
        if not self.inner.done():
            return False
        try:
            self.inner.wait(0)  # it has ended
        except DistError as error:  # kept there, and raised by wait()
            self._line.end(error)
        else:
            self._line.end(None)
        return True

    def wait(self, deadline_ns: int) -> None:
        """Wait for the end; when only this wait gives up, the op has not ended."""
        try:
            self.inner.wait(deadline_ns)
        except DistError as error:
            if self.inner.done():
                self._line.end(error)
            raise
        self._line.end(None)


def untraced(engine: Engine) -> Engine:
    """Return the engine that carries out the ops."""
    return engine.inner if isinstance(engine, TracingEngine) else engine


def _show(call: Call, group: ProcessGroup) -> str:
    parts = []
    if call.inputs is not call.outputs and call.inputs:
        parts.append(f"from {_show_arrays(call.inputs)}")
    if call.outputs:
        parts.append(f"into {_show_arrays(call.outputs)}")
    if call.op is not None:
        parts.append(f"op {call.op.op.name}")
    if call.root >= 0:
        parts.append(f"root {group.ranks[call.root]}")
    if call.kind >= Kind.SEND:
        peer = f"rank {group.ranks[call.peer]}" if call.peer >= 0 else "any rank"
        parts.append(f"{'to' if call.kind is Kind.SEND else 'from'} {peer}, tag {call.tag}")
    return ", ".join(parts) or "no arrays"


def _show_arrays(arrays: Any) -> str:
    shown = [
        f"{getattr(x, 'dtype', type(x).__name__)}{list(getattr(x, 'shape', ()))}"
        for x in arrays[:_SHOWN]
    ]
    more = f" and {len(arrays) - _SHOWN} more" if len(arrays) > _SHOWN else ""
    return " ".join(shown) + more
