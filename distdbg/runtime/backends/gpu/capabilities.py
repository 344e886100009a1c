"""What the ranks of a group have for arrays on a GPU: each says so while the group is made.

So the first op on such arrays knows the best way that all of them can go, and waits for nobody. A rank
without a GPU says nothing, and its groups cost nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from distdbg.config import read_setting
from distdbg.errors import DistStoreError
from distdbg.runtime.backends.gpu import pinned_memory
from distdbg.runtime.backends.gpu.driver import has_cupy, is_likely
from distdbg.runtime.backends.gpu.routes import GpuRoute

if TYPE_CHECKING:
    from distdbg.runtime.store import Store

_IPC = "DISTDBG_GPU_IPC"
#: The form of offers from a device that a rank takes (message_offer.py); others go through the host.
MESSAGES: Final = 1


def announce(store: Store, rank: int, size: int) -> None:
    """Say what this rank has; before the ranks meet for the first time."""
    if size > 1 and is_likely():
        pinned_memory.check_limit()
        reported = {"ipc": has_cupy() and read_setting(_IPC) != "off", "messages": MESSAGES}
        store.set(_key(rank), json.dumps(reported))


def best_way(store: Store, size: int, *, is_one_host: bool) -> GpuRoute:
    """What all ranks have said that they can, when they have met: the same on all of them."""
    keys = [_key(rank) for rank in range(size)]
    if size == 1 or not store.check(keys):
        return GpuRoute.WHOLE
    reported = [json.loads(words) for words in store.multi_get(keys)]
    return (
        GpuRoute.IPC if is_one_host and all(each["ipc"] for each in reported) else GpuRoute.CHUNKS
    )


def takes_messages(store: Store, rank: int) -> bool:
    """Whether a rank of this host has said that it takes messages from the device."""
    try:
        if not store.check([_key(rank)]):
            return False
        reported = json.loads(store.get(_key(rank)))
    except DistStoreError:  # it is gone by now: then they go through the host
        return False
    return bool(reported["ipc"]) and reported.get("messages") == MESSAGES


def takes_small_too() -> bool:
    """Whether also small arrays go the best way, for tests."""
    return read_setting(_IPC) == "always"


def _key(rank: int) -> str:
    return f"gpu/{rank}"
