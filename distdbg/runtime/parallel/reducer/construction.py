"""What ranks tell each other when a reducer is made: its model, and a checksum of each value."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from distdbg.errors import CollectiveError, DistError, DivergedError
from distdbg.log.log_levels import DebugLevel
from distdbg.log.logs import get_logger
from distdbg.record.writing import write_error
from distdbg.runtime.api.assert_same import assert_same
from distdbg.runtime.api.collectives import all_gather_into_tensor
from distdbg.runtime.api.objects import all_gather_object
from distdbg.runtime.arrays.buffers import as_input
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.parallel.reducer.agreement import Description, compare_models
from distdbg.runtime.parallel.reducer.arrays import Array
from distdbg.runtime.parallel.reducer.names import list_names

_log = get_logger("parallel")


def agree_on_model(group: ProcessGroup, mine: Description) -> None:
    """MismatchError on all ranks unless all have the same model. One small all_gather if they have."""
    text = repr((mine.parameters, sorted(mine.options.items()))).encode()
    words = np.zeros(group.size(), np.uint64)
    digest = np.frombuffer(blake2b(text, digest_size=8).digest(), np.uint64)
    all_gather_into_tensor(words, digest, group=group)
    if len(set(words.tolist())) == 1:
        return
    everybody: list[Any] = [None] * group.size()
    all_gather_object(everybody, mine, group=group)
    this_rank = group.ranks[group.rank()]
    error = compare_models(everybody, group.ranks, group.label, this_rank)
    if error is not None:
        raise recorded(group, error)


def compare_values(group: ProcessGroup, values: Mapping[str, Array], level: DebugLevel) -> None:
    """Before rank 0's values are broadcast: log which ones differ from its own on this rank."""
    if level is DebugLevel.OFF:
        return
    mine = np.array([_checksum(value) for value in values.values()], np.uint64)
    if not mine.size:
        return
    everybody = np.zeros((group.size(), mine.size), np.uint64)
    all_gather_into_tensor(everybody, mine[None], group=group)
    differ = everybody[group.rank()] != everybody[0]
    if differ.any():
        names = [name for name, is_other in zip(values, differ, strict=True) if is_other]
        _log.info(
            "DDP: %d of %d values are other ones than on rank %d, and are replaced by them: %s",
            len(names), len(values), group.ranks[0], list_names(names),
        )  # fmt: skip


def check_values(
    group: ProcessGroup, values: Mapping[str, Array], level: DebugLevel, is_synced: bool
) -> None:
    """DivergedError unless all ranks have the same values; only a warning where nobody made them so."""
    if level is DebugLevel.OFF:
        return
    try:
        assert_same(dict(values), group, "DDP's")
    except DivergedError as error:
        if is_synced:
            raise
        # Its text: a log that keeps its records would keep the error's frames, and with them the group.
        _log.warning("DDP with init_sync=False begins with different values: %s", str(error))


def recorded(group: ProcessGroup, error: DistError) -> DistError:
    """The error, about the ops up to here; it is in this rank's record from now on."""
    if isinstance(error, CollectiveError) and error.seq < 0:
        error.seq = group.issued()
    if group.world.recorder is not None:
        write_error(group.world.recorder, group.record_number, 0, error)
    return error


def _checksum(value: Array) -> int:
    view = as_input(value)
    return view.hash(0, view.nbytes)
