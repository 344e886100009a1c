"""Tests of what ranks say to each other: they hold over any transport.

Left out is what sends nothing by one: the reference engine speaks through a store, as do the files of
`tests/unit/runtime` and `tests/parity` that are not listed; a rank alone has nobody to speak to.
"""

from __future__ import annotations

from typing import Final

_RUNTIME = (
    *("collectives", "group_methods", "join", "objects", "p2p", "timeouts"),
    *("checked_messages", "foreign_control", "levels", "membership"),
)
_CHECK = ("messages", "mismatches")
_PARITY = (
    *("blocks", "collectives", "debugging", "errors", "groups", "mesh", "objects"),
    *("point_to_point", "reduce_ops", "shutdown", "work"),
)

#: By name: what pytest is told to run.
ROOMS: Final[dict[str, tuple[str, ...]]] = {
    room: ("-k", "not reference", *(f"tests/{folder}/test_{name}.py" for name in names))
    for room, folder, names in (
        ("runtime", "unit/runtime", _RUNTIME),
        ("check", "unit/check", _CHECK),
        ("parity", "parity", _PARITY),
    )
}
