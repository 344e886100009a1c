"""What ranks tell each other after a pass that was unusual on one of them: their reports of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from distdbg.errors import DistError, UsageError
from distdbg.log.logs import get_logger
from distdbg.runtime.api.objects import all_gather_object
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.parallel.reducer.construction import recorded
from distdbg.runtime.parallel.reducer.counts import Counts
from distdbg.runtime.parallel.reducer.pass_report import PassReport
from distdbg.runtime.parallel.reducer.passes import is_partial, judge_pass

_log = get_logger("parallel")


def exchange(
    group: ProcessGroup, mine: PassReport, counts: Counts
) -> tuple[Sequence[PassReport], DistError | None]:
    """Return the reports of all ranks; raise the same error on all where they are one. A collective.

    Returns the error where a further pass may bring what no rank had.
    """
    mine = replace(
        mine,
        batches=counts.batches,
        thrown_away=counts.thrown_away,
        thrown_site=counts.thrown_site,
    )
    everybody: list[Any] = [None] * group.size()
    all_gather_object(everybody, mine, group=group)
    error = judge_pass(everybody, group.ranks, group.label, group.ranks[group.rank()])
    reported = counts.learn(everybody, group.ranks, group.label, group.rank())
    if error is not None and not (isinstance(error, UsageError) and is_partial(everybody)):
        raise recorded(group, error)
    if reported:
        _log.warning("%s", reported)
    return everybody, error
