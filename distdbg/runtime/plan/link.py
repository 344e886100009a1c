"""What the elementary things cost between hosts: the numbers from which algorithms are chosen.

All ranks of a group must hold the same numbers, since each chooses for itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Latency, bandwidth and work of the hosts of a group. The defaults are those of 10 Gb Ethernet."""

    #: From the call that sends to the call that has received, for a message without bytes.
    latency_s: float = 25e-6
    #: A byte through the network card of a host, which its ranks share; each way has its own.
    byte_s: float = 1 / 1.25e9
    #: What a message keeps a core busy for, at either end.
    message_s: float = 2e-6
    #: A byte that one rank can send or receive at most, for its core has to copy it.
    rank_byte_s: float = 1 / 5e9
    fold_byte_s: float = 1 / 8e9
    copy_byte_s: float = 1 / 10e9
    #: A gate among the ranks of a host.
    host_gate_s: float = 0.5e-6
    #: The header of a slot, which every gate between hosts hands on.
    header_nbytes: int = 64
