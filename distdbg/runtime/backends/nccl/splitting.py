"""A group's communicator as a part of its parent's, where that was made with the parent (device_id=).

ncclCommSplit needs all ranks of the parent, those outside of the new group too, and nothing in flight. It
saves the exchange of a new id, and the ranks need not look for each other again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distdbg.runtime.backends.nccl.communicators import carry_out
from distdbg.runtime.backends.nccl.engine import NcclEngine

if TYPE_CHECKING:
    from distdbg.runtime.group import ProcessGroup


def split_communicator(parent: ProcessGroup, color: int, key: int) -> object:
    """This rank's part; None where there is none, or the parent's cannot be split."""
    engine = nccl_engine_of(parent)
    if engine is None or not engine.is_bound or engine.given_up is not None:
        return None
    comm = engine.communicator_at_rest()
    if comm is None or not hasattr(comm, "commSplit"):
        return None  # CuPy before 14

    def split() -> Any:
        with engine.library.cupy.cuda.Device(engine.device):
            return comm.commSplit(color, key)

    return carry_out(
        split, engine.library, parent, f"a part of the NCCL communicator of '{parent.label}'"
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
