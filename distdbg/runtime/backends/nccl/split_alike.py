"""What the ranks of a parent group ask for when its communicator is to be split, compared before any of them
waits for another in ncclCommSplit, which has no limit and compares nothing.

The comparison goes through the parent's store; every rank of the parent says its word, also one outside of
the new group, one that makes a communicator of its own and one whose communicator cannot be split.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from distdbg.errors import MismatchError, format_ranks
from distdbg.ops.sites import call_site
from distdbg.runtime.backends.nccl.arrivals import await_members, ranks_text

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """What one rank has called, as far as it decides who calls ncclCommSplit and with what."""

    function: str
    """new_group or split_group."""
    parts: Sequence[Sequence[int]]
    """The ranks of each part."""
    backend: str
    """'' where it is the parent's."""
    has_device: bool
    """Whether it was given a device_id of its own."""

    def __str__(self) -> str:
        words = [", ".join(f"[{format_ranks(list(part))}]" for part in self.parts) or "no ranks"]
        if self.backend:
            words.append(f"backend {self.backend!r}")
        words.append("a device_id" if self.has_device else "no device_id")
        return f"{self.function} of {', '.join(words)}"


def agree_on_split(parent: ProcessGroup, wish: SplitRequest, can_split: bool) -> bool:
    """Whether all ranks can split; MismatchError on all where they ask for unlike things."""
    number, me = parent.splits, parent.rank()
    parent.splits += 1
    mine = {**asdict(wish), "site": call_site(), "can_split": can_split}
    store = parent.get_group_store()
    keys = [f"nccl/split/{number}/{rank}" for rank in range(parent.size())]
    store.set(keys[me], json.dumps(mine))
    await_members(parent, store, keys, f"splitting group '{parent.label}'")
    found = [json.loads(each) for each in store.multi_get(keys)]
    if number:
        store.delete_key(f"nccl/split/{number - 1}/{me}")  # who came here has read it
    wrong = what_differs(parent.label, parent.ranks, found)
    if wrong is not None:
        raise wrong
    return all(each["can_split"] for each in found)


def what_differs(
    label: str, names: Sequence[int], found: Sequence[dict[str, object]]
) -> MismatchError | None:
    """The error for what the ranks ask for; None where it is the same."""
    sides: dict[str, list[int]] = {}
    sites: dict[int, object] = {}
    for name, each in zip(names, found, strict=True):
        said = {key: value for key, value in each.items() if key not in ("site", "can_split")}
        sides.setdefault(str(SplitRequest(**said)), []).append(name)  # type: ignore[arg-type]
        sites[name] = each["site"]
    if len(sides) == 1:
        return None
    odd = min(sides.values(), key=len)
    first, second = [ranks_text(who) for who in sides.values()][:2]
    return MismatchError(
        f"the ranks of group '{label}' split it differently: {first} and {second}",
        ranks=odd,
        group=label,
        details=[f"{ranks_text(who)}: {what} at {sites[who[0]]}" for what, who in sides.items()],
        hint="all ranks of the parent group give the same ranks, backend and device_id",
    )
