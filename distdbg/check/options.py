"""Options of the checks: what a group checks beside the calls, each off by default.

    NONFINITE  NaN and Inf in inputs, before they spread     DISTDBG_CHECK_NONFINITE
    BUFFERS    arrays that change while an op owns them      DISTDBG_CHECK_BUFFERS
    ORDER      call sites, for ops issued in another order   DISTDBG_CHECK_ORDER
    interval   outputs that must be equal on all ranks       DISTDBG_CHECKSUM_EVERY

Group rank 0 reads them when it makes the group, and native code passes them to the others, so all
ranks of a group check the same. They are checked at level DETAIL only: set_debug_level switches
them off and on while the program runs. The bits are those of native/core/checks.hpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distdbg.config import read_setting
from distdbg.errors import ConfigError
from distdbg.ops.call import Kind

NONFINITE = 1
BUFFERS = 2
ORDER = 4

_VARIABLES = {
    NONFINITE: "DISTDBG_CHECK_NONFINITE",
    BUFFERS: "DISTDBG_CHECK_BUFFERS",
    ORDER: "DISTDBG_CHECK_ORDER",
}
_INTERVAL = "DISTDBG_CHECKSUM_EVERY"
_LIMIT = 2**32 - 1

#: Ops that leave the same in the outputs of every rank.
HAVE_EQUAL_OUTPUTS = frozenset({Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.BROADCAST})


@dataclass(frozen=True, slots=True)
class Options:
    """The bits above, and how often outputs are compared (0: never)."""

    bits: int = 0
    checksum_interval: int = 0


def read_options(environ: Mapping[str, str] | None = None) -> Options:
    """Read them from the environment."""
    bits = 0
    for bit, name in _VARIABLES.items():
        if read_setting(name, environ):
            bits |= bit
    interval = read_setting(_INTERVAL, environ)
    assert isinstance(interval, int)  # the table says so
    if not 0 <= interval <= _LIMIT:
        raise ConfigError(
            f"the variable {_INTERVAL}='{interval}' is not valid; expected 0 to {_LIMIT}"
        )
    return Options(bits, interval)
