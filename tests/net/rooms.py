"""Tests of what ranks say to each other: they hold over any transport."""

from __future__ import annotations

from typing import Final

_RUNTIME = ("collectives", "group_methods", "groups", "join", "objects", "p2p", "timeouts")
_CHECK = ("checked_messages", "foreign_control", "levels", "membership", "messages", "mismatches")

#: By name: the files, or a folder.
ROOMS: Final[dict[str, tuple[str, ...]]] = {
    "runtime": tuple(f"tests/unit/runtime/test_{name}.py" for name in _RUNTIME),
    "check": (
        *(f"tests/unit/check/test_{name}.py" for name in _CHECK),
        "tests/unit/check/test_monitored_barrier.py",
    ),
    "parity": ("tests/parity",),
}
