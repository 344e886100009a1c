"""_coalescing_manager: the ops called in a block are started together, at its end (groups/coalesced.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from distdbg.errors import UsageError
from distdbg.runtime.api.options import Timeout
from distdbg.runtime.groups.coalesced import Collector, limited, start_all
from distdbg.runtime.groups.group_argument import Group, resolve
from distdbg.runtime.handles.work import Work


class _Started:
    """What the block yields: with async_ops, wait() waits for all ops of it."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work | None = None) -> None:
        """Add a Work to wait for."""
        if work is not None:
            self.works.append(work)

    def wait(self, timeout: timedelta = timedelta(0)) -> None:
        """Wait for all ops of the block."""
        for work in self.works:
            work.wait(timeout)
        self.works = []


@contextmanager
def _coalescing_manager(
    group: Group = None,
    device: object = None,
    async_ops: bool = False,
    timeout: Timeout = None,
) -> Iterator[_Started]:
    """Start the ops called in the block together, at its end.

    `timeout` is the limit of each op that brings none of its own.
    """
    pg = resolve(group, "_coalescing_manager")
    started = _Started()
    if pg is None:
        yield started
        return
    if pg.collector is not None:
        raise UsageError(f"a coalescing block is already open on group {pg.label!r}")
    collector = Collector()
    pg.collector = collector
    try:
        yield started
    finally:
        pg.collector = None
    if not collector.calls:
        return
    work = start_all(pg, limited(collector.calls, timeout))
    if async_ops:
        started.append(work)
    else:
        work.wait()
