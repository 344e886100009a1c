"""Makes the engine of a group over NCCL, checked and recorded, with our own beside it for the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from distdbg.errors import format_ranks
from distdbg.runtime.backends.by_device import ByDevice
from distdbg.runtime.backends.checked.wrapping import put_beside
from distdbg.runtime.backends.nccl.engine import NcclEngine
from distdbg.runtime.backends.nccl.making import make_engine
from distdbg.runtime.backends.nccl.queued import QueuedEngine
from distdbg.runtime.process.debugger_seam import on_other_rules

if TYPE_CHECKING:
    from distdbg.ops.engine import Engine
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store


def make_both(
    make_host: Callable[[int], Engine],
    group: ProcessGroup,
    store: Store,
    pg_options: object,
    *,
    is_for_gpus_alone: bool,
) -> ByDevice:
    """Make both; `make_host` takes the number that the group's host ops have in the record."""
    made: list[NcclEngine] = []

    def make_nccl() -> Engine:
        made.append(make_engine(group, store, pg_options))
        return made[0]

    recorder = group.world.recorder
    number = 0
    if recorder is not None:
        # Of its own: ops of the two are numbered apart, and run beside each other.
        number = recorder.add_group(
            f"{group.group_name}/host", f"{group.label} (host)",
            format_ranks(group.ranks, group.size()), "gloo",
            group.size(), group.rank(), int(group.timeout_s * 1e9),
        )  # fmt: skip
    host = make_host(number)
    try:
        device = put_beside(make_nccl, group, store)
    except BaseException:
        host.close()
        raise
    if recorder is not None:
        device = QueuedEngine(
            device, recorder, group.record_number, group.ranks, group.world.control,
            partial(on_other_rules, group),
        )  # fmt: skip
    return ByDevice(
        host,
        device,
        made[0].prepare,
        has_device_barrier=is_for_gpus_alone,
        on_close=lambda: None if recorder is None else recorder.close_group(number),
    )
