"""What no algorithm between hosts can beat: the latency of passing a word on, and the bytes of one card.

Something must get from each host to each other one, which takes as many messages in a row as the number
of hosts has binary digits; and what has to pass the network card of one host takes its time. That the
calls are compared before a byte of data leaves is not in it.
"""

from __future__ import annotations

from collections.abc import Callable

from distdbg.ops.call import Kind
from distdbg.runtime.plan.problem import Topology

#: How many times the bytes of all blocks pass a card, by the share that other hosts have.
_PASSES: dict[Kind, Callable[[float], float]] = {
    Kind.ALL_REDUCE: lambda others: 2 * others,
    Kind.BROADCAST: lambda others: 1.0,
    Kind.REDUCE: lambda others: 1.0,
    Kind.ALL_GATHER: lambda others: others,
    Kind.GATHER: lambda others: others,
    Kind.SCATTER: lambda others: others,
    Kind.REDUCE_SCATTER: lambda others: others,
    Kind.ALL_TO_ALL: lambda others: others,
    Kind.BARRIER: lambda others: 0.0,
}


def latency_bound_s(topology: Topology) -> float:
    """alpha * ceil(log2 p), p being hosts."""
    return topology.link.latency_s * (len(topology.layout.hosts) - 1).bit_length()


def bytes_bound_s(kind: Kind, nbytes: int, topology: Topology) -> float:
    """For blocks of `nbytes`; 2 (p - 1) / p n beta for all_reduce."""
    layout = topology.layout
    total = nbytes * blocks_of(kind, layout.size)
    if kind is Kind.ALL_TO_ALL:
        total *= layout.largest
    return _PASSES[kind](1 - 1 / len(layout.hosts)) * total * topology.link.byte_s


def bound_s(kind: Kind, nbytes: int, topology: Topology) -> float:
    """Both."""
    return latency_bound_s(topology) + bytes_bound_s(kind, nbytes, topology)


def blocks_of(kind: Kind, size: int) -> int:
    """How many blocks the larger side of a call has."""
    if kind in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE):
        return 1
    return 0 if kind is Kind.BARRIER else size
