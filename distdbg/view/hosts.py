"""The hosts of a job as rows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from distdbg.view.snapshot import HostRow


def host_rows(
    names: Iterable[str], *, lost: Collection[str] = (), left: Collection[str] = ()
) -> tuple[HostRow, ...]:
    """Each once, in the order in which they are told; records that do not name their host have none.

    `lost`: whose agents nobody hears; `left`: whose agents have ended in good order.
    """
    return tuple(
        HostRow(host=name, is_lost=name in lost, has_left=name in left)
        for name in dict.fromkeys(names)
        if name
    )
