"""The c10d kind: launchers that come and go meet at an endpoint, where one of them serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdbg.errors import UsageError
from distdbg.launch.rendezvous.settings import Settings
from distdbg.launch.rendezvous.solo import SoloRendezvous

if TYPE_CHECKING:
    from distdbg.launch.rendezvous.registry import RendezvousOptions
    from distdbg.launch.rendezvous.round import Rendezvous


def make_c10d(options: RendezvousOptions) -> Rendezvous:
    """Alone with --standalone or --nnodes 1, else at --rdzv-endpoint."""
    settings = Settings.read(options.rdzv_conf)
    if options.standalone or options.max_nodes == 1:
        return SoloRendezvous(options.rdzv_id, host=options.local_addr or "127.0.0.1")
    raise UsageError(f"{settings}")
