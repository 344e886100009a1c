"""Makes the NcclEngine of a group: on which device, and with whose communicator."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from distdbg.config import read_setting
from distdbg.errors import UsageError
from distdbg.log.logs import get_logger
from distdbg.runtime.backends.nccl.communicators import make_communicator, watch_members
from distdbg.runtime.backends.nccl.engine import NcclEngine
from distdbg.runtime.backends.nccl.library import NcclLibrary, load
from distdbg.runtime.backends.nccl.options import NcclOptions

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store

_log = get_logger("runtime")


def make_engine(group: ProcessGroup, store: Store, pg_options: object) -> NcclEngine:
    """Make the engine of a group; all its members do."""
    library = load()
    device = device_of(group.bound_device_id)
    part, group.device_part = group.device_part, None
    engine = NcclEngine(
        library,
        partial(make_communicator, library, group, store) if part is None else lambda *_: part,
        name=group.label,
        rank=group.rank(),
        size=group.size(),
        timeout_s=group.timeout_s,
        clock=group.world.control,
        options=NcclOptions.read(pg_options),
        is_alone=group.size() == 1 or bool(read_setting("DISTDBG_UNWRAPPED")),
        guess_device=partial(_guess_device, library, group),
        watch_members=partial(watch_members, group),
    )
    if device is not None:
        try:
            engine.bind(device)
        except BaseException:
            engine.close()
            raise
    return engine


def _guess_device(library: NcclLibrary, group: ProcessGroup) -> int:
    """For an op without arrays where the program has chosen none; torch takes the same."""
    text = os.environ.get("LOCAL_RANK", "")
    rank = int(text) if text.isdecimal() else group.ranks[group.rank()]
    device = rank % library.device_count()
    _log.warning(
        "barrier on group '%s' has no array that tells the GPU of this rank: cuda:%d is taken; "
        "choose one with device_id=, or cupy.cuda.Device(n).use()",
        group.label,
        device,
    )
    return device


def device_of(device_id: object) -> int | None:
    """The number in 0, 'cuda:0', torch.device('cuda:0') or cupy.cuda.Device(0); None where there is none."""
    if device_id is None:
        return None
    for name in ("index", "id"):
        number = getattr(device_id, name, None)
        if isinstance(number, int):
            return number
    text = str(device_id).removeprefix("cuda:")
    if not text.isdecimal():
        raise UsageError(f"device_id={device_id!r} is not a CUDA device such as 'cuda:0' or 0")
    return int(text)
