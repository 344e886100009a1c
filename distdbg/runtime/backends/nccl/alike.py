"""What the ranks of a new group have for NCCL, compared before any of them waits for another in NCCL.

A rank without a GPU would make its group over the host alone, and one without device_id= its communicator
later.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distdbg.errors import DistBackendError, DistError, MismatchError
from distdbg.runtime.backends.nccl.arrivals import await_members, ranks_text

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store


def compare(group: ProcessGroup, store: Store, why_not: str | None) -> None:
    """Raise where the members differ, on all of them alike; they have met in the store already."""
    mine = {
        "why_not": why_not,
        "has_device": group.bound_device_id is not None,
        "has_part": group.device_part is not None,
    }
    keys = [f"nccl/has/{rank}" for rank in range(group.size())]
    store.set(keys[group.rank()], json.dumps(mine))
    await_members(group, store, keys, f"making group '{group.label}'")
    wrong = what_differs(group.label, group.ranks, [json.loads(x) for x in store.multi_get(keys)])
    if wrong is not None:
        raise wrong


def what_differs(
    label: str, names: Sequence[int], have: Sequence[dict[str, Any]]
) -> DistError | None:
    """The error for what the ranks say of themselves; None where they are alike."""

    def sides(key: str, value: object) -> tuple[list[int], list[int]]:
        """The ranks with this value, and the others."""
        same = [name for name, x in zip(names, have, strict=True) if x[key] == value]
        return same, [name for name in names if name not in same]

    able, unable = sides("why_not", None)
    if able and unable:
        why = have[list(names).index(unable[0])]["why_not"]
        return DistBackendError(
            f"group '{label}': {ranks_text(able)} can use NCCL, {ranks_text(unable)} cannot: {why}",
            hint="give all ranks a GPU and CuPy, or use backend='gloo'",
        )
    given, not_given = sides("has_device", True)
    if given and not_given:
        return MismatchError(
            f"group '{label}': device_id= was given on {ranks_text(given)}, not on {ranks_text(not_given)}",
            ranks=given if len(given) < len(not_given) else not_given,
            group=label,
            hint="give device_id= on all ranks or on none",
        )
    parted, not_parted = sides("has_part", True)
    if parted and not_parted:
        return DistBackendError(
            f"group '{label}': {ranks_text(parted)} split the communicator of the parent, "
            f"{ranks_text(not_parted)} did not",
            hint="use one version of CuPy, or give new_group a device_id=",
        )
    return None
