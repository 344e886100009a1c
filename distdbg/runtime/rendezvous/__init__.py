"""How ranks find each other: own rank and world size, the place to meet, and who has joined.

detect, resolve             decisions from arguments, URL and environment; pure
outcome                     the result of a rendezvous and its error messages; pure
process                     which process an announcement came from, and whether it is gone
presence                    who of this host has come, and died before the store knew
published_store             the file in which rank 0 publishes the address of its store
reach, assemble             I/O: open the store, announce and wait
join                        all of it; `init_process_group` uses `join`
token                       the secret that all ranks of a run share
state_folder                the folders in which something of this user outlives a run
"""

from __future__ import annotations

from distdbg.runtime.rendezvous.detect import LauncherInfo, detect
from distdbg.runtime.rendezvous.join import (
    Membership,
    join,
    register_rendezvous_handler,
    rendezvous,
)
from distdbg.runtime.rendezvous.outcome import JoinedRank

__all__ = [
    "JoinedRank",
    "LauncherInfo",
    "Membership",
    "detect",
    "join",
    "register_rendezvous_handler",
    "rendezvous",
]
