"""Measures: how long the parts of a pass take, as torch's DDP logs them. Clocks are read by the caller.

forward         from the begin of the forward pass to the begin of the backward pass
backward        from there to the last gradient
communication   from the first bucket that is reduced to the end of the last
overlap         of it, what lies beside the backward pass
"""

from __future__ import annotations

from dataclasses import dataclass

#: A line is logged after so many passes, then after each further hundred.
_FIRST_LINE = 10
INTERVAL = 100


@dataclass(slots=True)
class PassTimes:
    """The times of one pass, in nanoseconds since the epoch; 0: not known."""

    forward_begin_ns: int = 0
    backward_begin_ns: int = 0
    last_gradient_ns: int = 0
    comm_begin_ns: int = 0
    comm_end_ns: int = 0

    @property
    def forward_ns(self) -> int:
        """Time of the forward pass."""
        return _length(self.forward_begin_ns, self.backward_begin_ns)

    @property
    def backward_ns(self) -> int:
        """Time of the backward pass."""
        return _length(self.backward_begin_ns, self.last_gradient_ns)

    @property
    def comm_ns(self) -> int:
        """Time of the communication of all buckets."""
        return _length(self.comm_begin_ns, self.comm_end_ns)

    @property
    def overlap_ns(self) -> int:
        """Time in which communication and backward pass overlap."""
        return _length(self.comm_begin_ns, min(self.last_gradient_ns, self.comm_end_ns))


def _length(begin_ns: int, end_ns: int) -> int:
    return max(0, end_ns - begin_ns) if begin_ns and end_ns else 0


class Measures:
    """The moments of the pass before, and sums over all."""

    def __init__(self) -> None:
        self.last = PassTimes()
        self.count = 0
        self.interval = INTERVAL
        self._forward_ns = self._backward_ns = self._comm_ns = self._overlap_ns = 0

    def add(self, pass_: PassTimes) -> None:
        """Take one pass in."""
        self.last = pass_
        self.count += 1
        self._forward_ns += pass_.forward_ns
        self._backward_ns += pass_.backward_ns
        self._comm_ns += pass_.comm_ns
        self._overlap_ns += pass_.overlap_ns

    def is_time_to_say(self) -> bool:
        """Whether this pass is one after which a line is logged."""
        return self.count == _FIRST_LINE or (self.count > 0 and self.count % self.interval == 0)

    def line(self) -> str:
        """The last pass in words."""
        one = self.last
        forward = f"forward {_ms(one.forward_ns)}, " if one.forward_begin_ns else ""
        return (
            f"{forward}backward {_ms(one.backward_ns)}, "
            f"communication {_ms(one.comm_ns)}, {_ms(one.overlap_ns)} of it beside the backward pass"
        )

    def facts(self) -> dict[str, int]:
        """By the names that torch's DDP has for them; times in nanoseconds."""
        if not self.count:
            return {}
        one, count = self.last, self.count
        return {
            "forward_compute_time": one.forward_ns,
            "backward_compute_time": one.backward_ns,
            "backward_comm_time": one.comm_ns,
            "backward_compute_comm_overlap_time": one.overlap_ns,
            "avg_forward_compute_time": self._forward_ns // count,
            "avg_backward_compute_time": self._backward_ns // count,
            "avg_backward_comm_time": self._comm_ns // count,
            "avg_backward_compute_comm_overlap_time": self._overlap_ns // count,
            "forward_compute_time_start": one.forward_begin_ns,
            "backward_compute_time_start": one.backward_begin_ns,
            "backward_compute_time_end": one.last_gradient_ns,
            "backward_comm_time_start": one.comm_begin_ns,
            "backward_comm_time_end": one.comm_end_ns,
        }


def _ms(length_ns: int) -> str:
    return f"{length_ns / 1e6:.2f} ms"
