"""What the elementary things cost between hosts: the numbers from which algorithms are chosen.

All ranks of a group must hold the same numbers, since each chooses for itself.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import ClassVar

from distdbg.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLink:
    """Latency, bandwidth and work of the hosts of a group. The defaults are those of 10 Gb Ethernet."""

    #: Latencies are rounded to powers of two, from this on; bandwidths to powers of two in Gb/s.
    LEAST_LATENCY_S: ClassVar[float] = 1e-6
    #: On a busy host a long message may be measured to take no longer than a short one, or minutes.
    GBIT_RANGE: ClassVar[tuple[float, float]] = (2.0**-10, 2.0**12)

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
    #: The same where slots carry the data, which stay in the cache.
    slot_fold_byte_s: float = 1 / 16e9
    slot_copy_byte_s: float = 1 / 25e9
    #: A gate among the ranks of a host.
    host_gate_s: float = 0.5e-6
    #: The header of a slot, which every gate between hosts hands on.
    header_nbytes: int = 64

    @property
    def words(self) -> str:
        """As DISTDBG_LINK has it."""
        return f"{self.latency_s * 1e6:.12g}us,{8e-9 / self.byte_s:.12g}Gb"


def parse_link(text: str) -> NetworkLink:
    """'25us,10Gb': what DISTDBG_LINK says."""
    match = re.fullmatch(r"\s*([\d.]+)\s*us\s*,\s*([\d.]+)\s*Gb\s*", text)
    try:
        latency_us, gbit = (float(match[1]), float(match[2])) if match else (0.0, 0.0)
    except ValueError:
        latency_us = gbit = 0.0
    if not (latency_us > 0 and gbit > 0):
        raise ConfigError(
            f"the variable DISTDBG_LINK has {text!r}; expected latency and bandwidth, as 25us,10Gb"
        )
    return replace(NetworkLink(), latency_s=latency_us * 1e-6, byte_s=8e-9 / gbit)


def measured_link(short_s: float, long_s: float, long_nbytes: int) -> NetworkLink:
    """From the time of a message without bytes, and of a long one.

    Rounded to powers of two, so that two runs on the same hosts seldom choose different algorithms.
    """
    link = NetworkLink()
    latency_s = _power_of_two(max(short_s - 2 * link.message_s, link.LEAST_LATENCY_S) * 1e6) / 1e6
    least, most = link.GBIT_RANGE
    gbit = _power_of_two(long_nbytes * 8e-9 / max(long_s - short_s, 1e-9))
    return replace(link, latency_s=latency_s, byte_s=8e-9 / min(max(gbit, least), most))


def _power_of_two(value: float) -> float:
    return 2.0 ** round(math.log2(value))
