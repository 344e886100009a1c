"""Puts the times of all ranks on one clock: the wall time of the first host, by its first record. Pure.

Ranks of one start of a machine (`boot_id`) share a monotonic clock. Between machines the agents have
estimated the offset (`clock_offset_ns` of the state); where they have not, each machine's own wall time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distdbg.record.entries import RecordHeader, StateEntry


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """What brings a rank's monotonic time to the session's clock."""

    offset_ns: int
    error_ns: int | None
    """None: nobody has estimated it."""


def find_offsets(ranks: Mapping[int, tuple[RecordHeader, StateEntry]]) -> dict[int, ClockOffset]:
    """The clock of each rank; the first rank that is there says what time it is."""
    if not ranks:
        return {}
    order = sorted(ranks)
    by_machine: dict[str, list[tuple[RecordHeader, StateEntry]]] = {}
    for rank in order:
        by_machine.setdefault(_machine(rank, ranks[rank][0]), []).append(ranks[rank])
    #: One answer per machine: the clock pairs of two ranks differ by what the kernel did in between.
    clocks: dict[str, ClockOffset] = {}
    first = _machine(order[0], ranks[order[0]][0])
    to_root = _estimate(by_machine[first])
    base_ns = ranks[order[0]][0].to_wall_ns(0)
    for machine, members in by_machine.items():
        estimate = _estimate(members)
        if machine == first:
            clocks[machine] = ClockOffset(base_ns, 0)
        elif to_root is not None and estimate is not None:
            offset_ns = base_ns + estimate.clock_offset_ns - to_root.clock_offset_ns
            error_ns = estimate.clock_error_ns + to_root.clock_error_ns
            clocks[machine] = ClockOffset(offset_ns, error_ns)
        else:
            clocks[machine] = ClockOffset(members[0][0].to_wall_ns(0), None)
    return {rank: clocks[_machine(rank, ranks[rank][0])] for rank in order}


def _estimate(members: list[tuple[RecordHeader, StateEntry]]) -> StateEntry | None:
    """What the agent of a machine has written, by the first of its ranks that has it."""
    return next((state for _, state in members if state.clock_error_ns), None)


def _machine(rank: int, header: RecordHeader) -> str:
    """A machine that does not tell which one it is is known by its rank alone."""
    return header.boot_id or f"of rank {rank}"
