"""monitored_barrier: a barrier that reports on every rank which ranks are missing, and where they are.

It uses only the group's store (members/store_barrier.py), so it works with every backend.
"""

from __future__ import annotations

from distdbg.record.format import Aside
from distdbg.runtime.api.options import Timeout, seconds_or_none
from distdbg.runtime.groups.group_argument import Group, resolve
from distdbg.runtime.members.store_barrier import run_monitored_barrier
from distdbg.runtime.recorder.recorded_waits import aside


def monitored_barrier(
    group: Group = None, timeout: Timeout = None, wait_all_ranks: bool = False
) -> None:
    """Wait for all ranks; OpTimeout on every rank names those that did not come.

    The barrier ends when the timeout of any rank has passed. All missing ranks are named, with or
    without `wait_all_ranks`, which torch.distributed needs for that.
    """
    pg = resolve(group, "monitored_barrier")
    if pg is not None:
        with aside(pg, Aside.MONITORED_BARRIER, pg.monitored_seq + 1):
            run_monitored_barrier(pg, seconds_or_none(timeout))
