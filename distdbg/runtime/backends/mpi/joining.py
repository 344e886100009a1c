"""How ranks meet over MPI: it says who they are, and carries the address of a store that rank 0 serves.

init_process_group("mpi")                 neither a place to meet nor a rank was named: all of it over MPI
init_process_group("mpi", "tcp://...")    the ranks meet there, as those MPI says they are
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import numpy as np

from distdbg.control.clock import JobClock
from distdbg.errors import InternalError
from distdbg.runtime.backends.mpi.library import MpiLibrary
from distdbg.runtime.backends.mpi.patience import await_request
from distdbg.runtime.backends.mpi.starting import start
from distdbg.runtime.net.address import own_address
from distdbg.runtime.rendezvous import Membership, join
from distdbg.runtime.rendezvous.token import run_token

if TYPE_CHECKING:
    from distdbg.runtime.store import Store

#: The address and the token of the run fit in.
_NBYTES: Final = 8192
#: Any of these names a place to meet.
_PLACES: Final = ("DISTDBG_STORE", "MASTER_ADDR")


def join_over_mpi(
    init_method: str | None,
    *,
    rank: int,
    world_size: int,
    timeout_s: float,
    store: Store | None,
    clock: JobClock,
) -> Membership:
    """As `join`, for ranks of MPI."""
    library = start(timeout_s, clock, world_size)
    deadline = time.monotonic() + timeout_s  # to load and start MPI takes seconds by itself
    library.check_place(rank, world_size)
    named = store is not None or init_method is not None or _names_place(os.environ)
    if not named:
        left_s = max(deadline - time.monotonic(), 0.001)
        store = open_store(library, left_s, clock)
    return join(
        init_method or "env://",
        rank=library.rank,
        world_size=library.size,
        timeout_s=max(deadline - time.monotonic(), 0.001),
        store=store,
    )


def open_store(library: MpiLibrary, timeout_s: float, clock: JobClock) -> Store:
    """Serve a store on rank 0, tell all ranks where it is, and reach it."""
    from distdbg.runtime.store import TCPStore

    timeout = timedelta(seconds=timeout_s)
    words = np.zeros(_NBYTES, np.uint8)
    served: Store | None = None
    if library.rank == 0:
        address = own_address(None, _is_one_machine(library))
        served = own = TCPStore(address, 0, is_master=True, timeout=timeout)
        text = json.dumps({"host": address, "port": own.port, "token": run_token().hex()}).encode()
        if len(text) > _NBYTES:
            raise InternalError("the address of the store does not fit in its message")
        words[: len(text)] = np.frombuffer(text, np.uint8)
    request = library.world.Ibcast([words, library.MPI.BYTE], root=0)
    await_request(
        request, clock, timeout_s, f"rank {library.rank}: rank 0 did not say where its store is"
    )
    if served is not None:
        return served
    meeting = json.loads(words.tobytes().rstrip(b"\0"))
    token = bytes.fromhex(meeting["token"])
    if token != run_token():
        # For all that proves itself with it later, the agent of this host as well.
        os.environ["DISTDBG_TOKEN"] = token.decode("utf-8", "surrogateescape")
    return TCPStore(meeting["host"], meeting["port"], timeout=timeout)


def _is_one_machine(library: MpiLibrary) -> bool:
    """Whether all ranks reach each other's loopback interface."""
    kernels = {(p.boot_id, p.net_namespace) for p in library.processes}
    return len(kernels) == 1 and all(all(kernel) for kernel in kernels)


def _names_place(environ: Mapping[str, str]) -> bool:
    return any(environ.get(name, "").strip() for name in _PLACES)
