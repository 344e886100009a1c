"""The first word of a report: the kind of failure. Pure.

    DEADLOCK        ranks wait for each other and can never go on
    MISMATCH        ranks called different things
    RANK DIED       a rank was killed, or crashed
    OUT OF MEMORY   ... by the kernel, for memory; or it raised MemoryError
    HUNG            ranks wait for one that does not arrive
    STOPPED         a person, or a scheduler, stopped a job in which nothing was wrong
    FAILED          anything else

Takes names of kinds and not the classes: a launcher reads this without loading the diagnosis.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DEADLOCK: Final = "DEADLOCK"
MISMATCH: Final = "MISMATCH"
RANK_DIED: Final = "RANK DIED"
OUT_OF_MEMORY: Final = "OUT OF MEMORY"
HUNG: Final = "HUNG"
STOPPED: Final = "STOPPED"
FAILED: Final = "FAILED"

#: All of them.
HEADLINES: Final = (DEADLOCK, MISMATCH, RANK_DIED, OUT_OF_MEMORY, HUNG, STOPPED, FAILED)
#: By the kind of a finding.
_BY_KIND: Final[Mapping[str, str]] = MappingProxyType(
    {
        "deadlock": DEADLOCK,
        "mismatch": MISMATCH,
        "dead rank": RANK_DIED,
        "missing rank": HUNG,
        "stuck rank": HUNG,
        "stall": HUNG,
        "stopped": STOPPED,
    }
)
#: By the type of an exception; of others nothing is known.
_BY_ERROR: Final[Mapping[str, str]] = MappingProxyType(
    {
        "MismatchError": MISMATCH,
        "RankLeft": MISMATCH,
        "OpTimeout": HUNG,
        "PeerLost": RANK_DIED,
        "MemoryError": OUT_OF_MEMORY,
        "OutOfMemoryError": OUT_OF_MEMORY,
        "DebuggerQuit": STOPPED,
    }
)
_MEMORY: Final = re.compile(r"\bkilled for memory\b|\braised MemoryError\b|\bOutOfMemoryError\b")
_ENDED_BY_ITSELF: Final = re.compile(
    r"\braised \w|\bexited with code\b|^ranks? \S+ did not use |^the models "
)
_LEFT: Final = re.compile(
    r" (?:left|returned|exited|destroyed the group) while .* waited for |'s recv .* took rank \d+'s message, "
    r"|^at \S+ rank \d+ called \w+ on group .*, ranks? .* on group "
)
_TIMED_OUT: Final = re.compile(r"\btimed out\b|\bOpTimeout\b")


def of_kind(kind: str, what: str = "") -> str:
    """The word of a finding, by its kind and the text of its first line."""
    word = _BY_KIND.get(kind, FAILED)
    if word in (RANK_DIED, FAILED) and _MEMORY.search(what):
        return OUT_OF_MEMORY
    if word == RANK_DIED and _ENDED_BY_ITSELF.search(what):
        return FAILED
    if word == HUNG and _LEFT.search(what):
        return MISMATCH  # nobody hung: the ranks made different numbers of calls
    if kind == "failed op" and _TIMED_OUT.search(what):
        return HUNG
    return word


def of_end(*, cause: str, signal: int | None, error_type: str = "") -> str:
    """The word of a rank that is gone: how its process ended and what it raised."""
    if cause == "oom":
        return OUT_OF_MEMORY
    if error_type in _BY_ERROR:
        return _BY_ERROR[error_type]
    return RANK_DIED if signal is not None and not error_type else FAILED
