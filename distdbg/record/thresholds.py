"""From which age on a rank that others wait for is worth a note, a warning, an error. The one table.

    state             note       warning    error
    stopped, traced                         at once: no rank continues by itself from there
    holds the GIL     at once    10 s       never: pickling and sorting do so too
    busy              at once    10 s       never: so do computations in Python
    blocked in I/O    at once    10 s       never: so are checkpoints
    asleep            at once    30 s       never: so are waits for loaders, threads and programs
    anything else     at once    30 s       never

No age proves a fault, so none of them makes an error. And what a run has survived before is no reason to
worry: a warning also waits until the gap is `FACTOR` times the longest one between two ops of a rank that
this run has had and come out of. `analyze`, `ps`, `top`, the agent, metrics, alerts and runbooks use this
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from distdbg.record.rank_state import RankState

Level = Literal["note", "warning", "error"]

_S: Final = 1_000_000_000
#: A gap counts from so many times the longest earlier one on.
FACTOR: Final = 3
#: A rank that is judged by the use of its CPU must have used it for so long: where ranks share cores, an
#: honest second takes long.
CPU_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class AgeThresholds:
    """The age from which a state is worth a note, a warning, an error; None: never."""

    warning_ns: int | None = None
    error_ns: int | None = None


TABLE: Final[Mapping[RankState, AgeThresholds]] = {
    RankState.STOPPED: AgeThresholds(error_ns=0),
    RankState.TRACED: AgeThresholds(error_ns=0),
    RankState.HOLDS_GIL: AgeThresholds(warning_ns=10 * _S),
    RankState.BUSY: AgeThresholds(warning_ns=10 * _S),
    RankState.BLOCKED_IO: AgeThresholds(warning_ns=10 * _S),
    RankState.ASLEEP: AgeThresholds(warning_ns=30 * _S),
}
ELSE: Final = AgeThresholds(warning_ns=30 * _S)


def measure_of(state: RankState | None) -> AgeThresholds:
    """The line of the table; None: nobody saw what the rank does."""
    return ELSE if state is None else TABLE.get(state, ELSE)


def limit_ns(state: RankState | None, longest_gap_ns: int = 0) -> int:
    """The age from which on it is more than a note; `longest_gap_ns`: survived earlier in this run."""
    measure = measure_of(state)
    if measure.error_ns is not None:
        return measure.error_ns
    assert measure.warning_ns is not None
    return max(measure.warning_ns, FACTOR * longest_gap_ns)


def level_of(state: RankState | None, age_ns: int, longest_gap_ns: int = 0) -> Level:
    """What a rank that others wait for is worth after so long in a state."""
    if age_ns < limit_ns(state, longest_gap_ns):
        return "note"
    return "warning" if measure_of(state).error_ns is None else "error"
