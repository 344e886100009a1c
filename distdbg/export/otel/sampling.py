"""Which ops are kept: all ranks of one or none, decided on every host alike. Pure.

Head: OTEL_TRACES_SAMPLER and _ARG by OpenTelemetry's rules: from the last eight bytes of the trace id
alone, as the SDKs do. When it is not set, numbers are thinned out: of each numbering the first
`FULL` ops are kept, then every second, every fourth ... and at last every `MAX_STRIDE`th; what a host
keeps so is a few thousand spans per rank whatever the program does, and a short job is kept whole.

Tail: what was slow, failed or did not match is kept anyway; that is decided by `is_remarkable` from what
one rank's record says of its end, and then for all ranks of the host.

Budget: an agent that would send more than its budget keeps, of what the head has chosen, those with the
smallest ids: so what two hosts have kept of one job is nested, and what the busier one has is whole.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from distdbg.export.otel.ids import low_half

FULL: Final = 1024
MAX_STRIDE: Final = 1024
ALL: Final = 2**64
#: How many decisions of a budget are remembered.
_MAX_DECISIONS: Final = 8192
_MAX_LEVEL: Final = 32
#: How long a level is kept at the least, when less is to be left out.
_LEVEL_NS: Final = 250_000_000

SAMPLERS: Final = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)


@dataclass(frozen=True, slots=True)
class Sampler:
    """The head's decision."""

    bound: int | None = None
    """What the last half of a trace id has to be below; None: by the op's number."""
    is_parent_based: bool = True
    """Whether the span of a user's context is kept exactly if the user's span is."""

    def keeps(self, trace_id: int, seq: int) -> bool:
        """Whether the op is kept; `seq` counts within its numbering, from 1."""
        if self.bound is None:
            return is_kept_number(seq)
        return low_half(trace_id) < self.bound

    def keeps_child(self, trace_id: int, is_sampled: bool) -> bool:
        """Whether a span of the user's own trace is kept."""
        if self.is_parent_based or self.bound is None:
            return is_sampled
        return low_half(trace_id) < self.bound


def is_kept_number(seq: int) -> bool:
    """The rule without a sampler."""
    return seq % stride_at(seq) == 0


def stride_at(seq: int) -> int:
    """Every how many of the ops about this number are kept: a power of two."""
    return min(1 << (max(seq - 1, 0) // FULL).bit_length(), MAX_STRIDE)


def read_sampler(environ: Mapping[str, str]) -> tuple[Sampler, str]:
    """The sampler that the environment asks for, and what was wrong with it: one warning, or ''."""
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if not name:
        return Sampler(), ""
    if name not in SAMPLERS:
        return Sampler(), f"OTEL_TRACES_SAMPLER={name!r} is none of {', '.join(SAMPLERS)}"
    is_parent_based = name.startswith("parentbased_")
    what = name.removeprefix("parentbased_")
    if what == "always_off":
        return Sampler(0, is_parent_based), ""
    if what == "always_on":
        return Sampler(ALL, is_parent_based), ""
    text = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
    try:
        ratio = float(text) if text else 1.0
        if not 0.0 <= ratio <= 1.0:
            raise ValueError(text)
    except ValueError:
        return (
            Sampler(ALL, is_parent_based),
            f"OTEL_TRACES_SAMPLER_ARG={text!r} is not a number from 0 to 1; 1 is taken",
        )
    return Sampler(round(ratio * ALL), is_parent_based), ""


def is_remarkable(*, status: int | None, took_ns: int, slow_ns: int) -> bool:
    """Whether the tail keeps it: it failed, did not match, or took long. `slow_ns` 0: never for its time."""
    return bool(status) or (slow_ns > 0 and took_ns >= slow_ns)


class SamplingDecision(Enum):
    """What a budget says of a trace."""

    TAKEN = "taken"
    LEFT_OUT = "left out"
    """Others have a smaller id, and there is not enough for all."""
    NO_ROOM = "no room"
    """It would be sent if what was taken before it were gone by now."""


class Budget:
    """Thins out what the head has kept when it is more than may be sent; one decision per trace.

    A trace is paid for when it is decided on, for all ranks of the host that will have a span in it.
    """

    def __init__(
        self,
        spans_per_s: float,
        now_ns: int,
        *,
        burst: float = 0.0,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """`burst`: how many at once, after a time without any; `has_room`: whether a trace may begin."""
        self._rate = spans_per_s
        self._most = self._left = max(burst, spans_per_s)
        self._now_ns = now_ns
        self._has_room = has_room
        self._level = 0
        self._decisions: OrderedDict[int, SamplingDecision] = OrderedDict()

    @property
    def level(self) -> int:
        """One of 2 ** level traces is kept."""
        return self._level

    def tick(self, now_ns: int) -> None:
        """Some time has passed: it may be spent again, and levels are left when half of it was not used."""
        passed_ns = now_ns - self._now_ns
        self._now_ns = now_ns
        if self._left > self._most / 2:
            self._level = max(0, self._level - max(1, passed_ns // _LEVEL_NS))
        self._left = min(self._left + self._rate * passed_ns / 1e9, self._most)

    def decide(self, trace_id: int, bound: int = ALL, cost: int = 1) -> SamplingDecision:
        """Whether there is enough for a trace; as it was decided for the first span of it.

        `bound`: what the head has kept is below it. `cost`: how many spans it will have.
        """
        half = low_half(trace_id)
        decided = self._decisions.get(half)
        if decided is None:
            if self._left <= 0 and self._level < _MAX_LEVEL:
                self._level += 1
                self._left += max(self._rate / 8, cost)
            if half >= bound >> self._level:
                decided = SamplingDecision.LEFT_OUT
            elif self._has_room():
                decided = SamplingDecision.TAKEN
                self._left -= cost
            else:
                decided = SamplingDecision.NO_ROOM
            self._decisions[half] = decided
            if len(self._decisions) > _MAX_DECISIONS:
                self._decisions.popitem(last=False)
        return decided
