"""Adds to an error that a rank ran out of batches, where the records of this host's ranks prove it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from distdbg.errors import DistError, JobAborted, MismatchError, OpTimeout

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup


def tell_out_of_batches(group: ProcessGroup, error: DistError) -> None:
    """Put it before the other details; nothing is known of ranks whose records are elsewhere."""
    folder = group.world.run_folder
    if folder is None or not isinstance(error, (MismatchError, OpTimeout, JobAborted)):
        return
    try:
        reading = import_module("distdbg.record.ran_out")
        found = reading.look(folder, group.group_name, group.ranks)
    except Exception:  # noqa: BLE001 - a record that cannot be read must not hide the error
        return
    words = "" if found is None else reading.describe(found)
    if words and words not in error.details:  # the agent may have said it
        error.details.insert(0, words)
        error.hint = import_module("distdbg.record.batches").hint_for(group.name())
