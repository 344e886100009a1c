"""Destroys communicators: NCCL may wait for peers meanwhile, without a limit and without saying for whom.

So it is done on threads, while the members are looked after; when one of them is gone, or the limit is over,
the communicators are aborted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from distdbg.errors import DistError, PeerLost
from distdbg.log.logs import get_logger
from distdbg.runtime.backends.nccl.ending import CommunicatorEnding

#: How often the members are looked at.
_SLICE_S: Final = 0.02
#: A member may have ended because it has destroyed its own: so long NCCL may still come back by itself.
_GRACE_S: Final = 2.0
_log = get_logger("runtime")


def destroy_all(
    comms: Sequence[Any], watch: Callable[[], None], ending: CommunicatorEnding, what: str
) -> None:
    """Destroy all that a group has; `watch` raises what means that NCCL waits for somebody in vain."""
    threads = [
        threading.Thread(
            target=_destroy, args=(comm, ending), name="distdbg-nccl-destroy", daemon=True
        )
        for comm in comms
    ]
    for thread in threads:
        thread.start()
    gone_at = 0.0
    while (alive := next((each for each in threads if each.is_alive()), None)) is not None:
        alive.join(_SLICE_S)
        try:
            watch()
        except DistError as error:
            gone_at = gone_at or time.monotonic()
            if isinstance(error, PeerLost) and time.monotonic() - gone_at < _GRACE_S:
                continue
            _log.warning("%s is aborted, which NCCL did not destroy: %s", what, error.what)
            ending.give_up(error.what)
            for thread in threads:
                thread.join(_GRACE_S)
            return


def _destroy(comm: Any, ending: CommunicatorEnding) -> None:
    with suppress(Exception):  # nothing comes after it here
        comm.destroy()  # may block, and can be aborted meanwhile
    ending.forget(comm)
