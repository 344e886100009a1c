"""Calls on a group that the rank is not in: torch warns, and does nothing, so that no op of them is seen."""

from __future__ import annotations

from functools import wraps
from typing import Any

from distdbg.ops.sites import warn_at_call_site
from distdbg.runtime.groups.group_argument import note_no_member


def note_calls_of_no_member(torch: Any) -> None:
    """From now on the record has them."""
    c10d = torch.distributed.distributed_c10d
    real = getattr(c10d, "_warn_not_in_group", None)
    if real is None:
        return  # not in this version

    @wraps(real)
    def warn(op_name: str) -> None:
        note_no_member(op_name)
        world = c10d.GroupMember.WORLD
        rank = -1 if world is None else world.rank()
        # In torch's words, which programs may filter; its own call would name this file as the place.
        text = f"Running {op_name} on global rank {rank} which does not belong to the given group."
        warn_at_call_site(text, UserWarning)

    c10d._warn_not_in_group = warn
