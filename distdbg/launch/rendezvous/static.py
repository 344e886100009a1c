"""The static kind: so many launchers, each told its place by --node-rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdbg.errors import UsageError
from distdbg.launch.rendezvous.settings import Settings
from distdbg.launch.rendezvous.solo import SoloRendezvous

if TYPE_CHECKING:
    from distdbg.launch.rendezvous.registry import RendezvousOptions
    from distdbg.launch.rendezvous.round import Rendezvous


def make_static(options: RendezvousOptions) -> Rendezvous:
    """Alone, or with others at --master-addr and --master-port (or --rdzv-endpoint)."""
    settings = Settings.read(options.rdzv_conf)
    if options.min_nodes != options.max_nodes:
        raise UsageError(
            f"--nnodes {options.min_nodes}:{options.max_nodes} needs launchers that may come and go",
            hint="add --rdzv-backend c10d --rdzv-endpoint HOST:PORT",
        )
    if options.max_nodes == 1:
        return SoloRendezvous(options.rdzv_id, host=options.local_addr or "127.0.0.1")
    raise UsageError(f"{settings}")
