"""What the tests of known calls have in common."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

import distdbg as dist
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.process.world import current

SIZE = 2


def world() -> ProcessGroup:
    group = current().default
    assert group is not None
    return group


def hits() -> int:
    """How many calls native code has carried out alone; of the default group."""
    engine: Any = world().known_engine
    return 0 if engine is None else int(engine.known_calls.hits)


def run(program: Callable[[int], Any], size: int = SIZE) -> list[Any]:
    return dist.run_threads(lambda: program(dist.get_rank()), size, timeout_s=60.0)


def send_around(x: Any, y: Any, **more: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(x, 1, **more)
        assert dist.recv(y, 1, **more) == 1
    else:
        assert dist.recv(y, 0, **more) == 0
        dist.send(x, 0, **more)


def is_known(call: Callable[[], Any]) -> bool:
    """Whether native code carries out the call that was made before."""
    before = hits()
    call()
    return hits() > before


def reduce_ones() -> None:
    x = np.ones(2, np.float32)
    dist.all_reduce(x)
    assert x.tolist() == [SIZE] * 2


def warm_up() -> None:
    for _ in range(3):
        reduce_ones()
    assert is_known(reduce_ones)


def finish(work: dist.Work | None) -> None:
    """Of an op that was started."""
    assert type(work) is dist.Work
    work.wait()


def are_freed(*alive: weakref.ref[Any]) -> bool:
    """Whether the collector frees them: it does nothing for one thread while it runs for another."""
    until = time.monotonic() + 20
    while any(each() is not None for each in alive):
        if time.monotonic() > until:
            return False
        gc.collect()
        time.sleep(0.01)  # nothing tells when the collector of another thread is done
    return True
