"""Ranks as threads over one in-memory store and the reference engine: no process, no native code.

run_store_ranks(function, 4) calls function(rank) on four threads, each with its own World.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import distdbg as dist
from distdbg.runtime.backends.registry import Backend
from distdbg.runtime.process.destroy import destroy_world
from distdbg.runtime.process.init import init_process_group
from distdbg.runtime.process.world import World, use
from distdbg.runtime.store import HashStore, Store
from tests.support.store_engine import StoreEngine

T = TypeVar("T")

#: For all threads to join.
_JOIN_S = 120.0
#: The name under which the reference engine is a backend.
REFERENCE = "reference"


def register_reference() -> None:
    """Make the reference engine a backend; harmless when it is one already."""
    if REFERENCE not in Backend.plugins:
        Backend.register_backend(REFERENCE, make_store_engine, devices="cpu")


def make_store_engine(store: Store, rank: int, size: int, timeout: timedelta) -> StoreEngine:
    """Make an engine in the form that register_backend asks for."""
    return StoreEngine(store, rank, size, timeout.total_seconds())


def run_store_ranks(
    function: Callable[[int], T],
    world_size: int,
    *,
    backend: str = REFERENCE,
    timeout_s: float = 10.0,
    is_initialized: bool = True,
    store: Store | None = None,
) -> list[T]:
    """Call function(rank) on each rank; return the results, or raise the first rank's error.

    With is_initialized=False the function calls init_process_group itself.
    """
    register_reference()
    shared = HashStore() if store is None else store
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def rank_main(rank: int) -> None:
        with use(World()) as world:
            try:
                if is_initialized:
                    init_process_group(
                        backend,
                        store=shared,
                        rank=rank,
                        world_size=world_size,
                        timeout=timedelta(seconds=max(timeout_s, _JOIN_S)),
                    )
                    # Of the ops alone: threads of a busy machine may take longer to be there.
                    world.require_default().set_timeout(timedelta(seconds=timeout_s))
                results[rank] = function(rank)
            except BaseException as error:
                errors[rank] = error
            finally:
                destroy_world(world)

    threads = [
        threading.Thread(target=rank_main, args=(rank,), name=f"rank {rank}")
        for rank in range(world_size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [results[rank] for rank in range(world_size)]


def limit_ops(seconds: float) -> None:
    """Of the default group, from here on: the limit it is made with is one for all ranks to meet as well."""
    world = dist.group.WORLD
    assert world is not None
    world.set_timeout(timedelta(seconds=seconds))
