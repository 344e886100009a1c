"""A group's communicator as a part of its parent's, where that was made with the parent (device_id=).

ncclCommSplit needs all ranks of the parent, those outside of the new group too, and nothing in flight. It
saves the exchange of a new id, and the ranks need not look for each other again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distdbg.runtime.backends.nccl.communicators import Makers, carry_out
from distdbg.runtime.backends.nccl.engine import NcclEngine
from distdbg.runtime.backends.nccl.split_alike import SplitRequest, agree_on_split

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup


def split_communicator(
    parent: ProcessGroup, wish: SplitRequest, is_wanted: bool, color: int, key: int
) -> object:
    """This rank's part; None where there is none, or where a rank of the parent cannot split.

    The parts are the ranks of one `color`, in the order of their `key`; below 0: this rank is in none.
    """
    engine, comm = nccl_engine_of(parent), None
    if is_wanted and engine is not None and engine.is_bound and engine.given_up is None:
        comm = engine.communicator_at_rest()
    can_split = comm is not None and hasattr(comm, "commSplit")  # CuPy before 14 has none
    if not agree_on_split(parent, wish, can_split):
        return None
    assert engine is not None  # all can
    assert comm is not None

    def split() -> Any:
        with engine.library.cupy.cuda.Device(engine.device):
            return comm.commSplit(color, key)

    return carry_out(
        split,
        engine.library,
        Makers(parent),
        f"a part of the NCCL communicator of '{parent.label}'",
    )


def nccl_engine_of(group: ProcessGroup) -> NcclEngine | None:
    """The engine below what is put around it."""
    engine: Any = group.engine
    while engine is not None:
        if isinstance(engine, NcclEngine):
            return engine
        device = getattr(engine, "device", None)
        inner = getattr(engine, "inner", None)
        engine = device if hasattr(device, "submit") else inner or getattr(engine, "engine", None)
    return None
