"""`python -m benchmarks.abort`: how soon a rank notices that its job was aborted, wherever it waits.

Two ranks; rank 0 waits in one place, and aborts the job from a thread meanwhile. The median of each
place beside the target: 50 ms for the wait to notice, and some for Python to run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import distdbg as dist
from benchmarks.machine import describe_machine
from distdbg.control.page import ControlPage
from distdbg.control.words import AbortWords
from distdbg.errors import JobAborted
from distdbg.record.host import host_name
from distdbg.runtime.process.world import current
from distdbg.testing.ranks import run_ranks

_TARGET_S = 0.06


def _store() -> Any:
    assert dist.group.WORLD is not None
    return dist.group.WORLD.get_group_store()


def _wait_for_a_work() -> None:
    work = dist.all_reduce(np.zeros(4), async_op=True)
    assert work is not None
    work.wait()


#: Rank 1 waits for a key, so that nobody comes to what rank 0 waits in.
PLACES: dict[str, Callable[[], object]] = {
    "all_reduce": lambda: dist.all_reduce(np.zeros(4)),
    "broadcast": lambda: dist.broadcast(np.zeros(3_000_000), src=1),
    "recv": lambda: dist.recv(np.zeros(4), 1),
    "work": _wait_for_a_work,
    "objects": lambda: dist.all_gather_object([None, None], "mine"),
    "get": lambda: _store().get("never"),
    "wait": lambda: _store().wait(["never"]),
    "store barrier": lambda: _store().barrier("never", 2),
    "monitored_barrier": dist.monitored_barrier,
    "new_group": lambda: dist.new_group([0, 1]),
}


def measure_here(place: str) -> float:
    """On one rank: seconds from the abort to the end of its wait."""
    dist.init_process_group()
    aborted: list[float] = []

    def abort() -> None:
        folder = current().run_folder
        assert folder is not None
        page = ControlPage.open(folder, host_name())
        aborted.append(time.monotonic())
        page.abort(AbortWords(what="it is measured"))
        page.close()

    timer = threading.Timer(0.2, abort)  # the wait begins before
    if dist.get_rank() == 0:
        timer.start()
    try:
        PLACES["wait" if dist.get_rank() == 1 else place]()
    except JobAborted:
        ended = time.monotonic()
    if dist.get_rank() == 0:
        timer.join()
    dist.destroy_process_group()
    return ended - aborted[0] if aborted else 0.0


def measure(place: str) -> float:
    """Seconds, once."""
    with tempfile.TemporaryDirectory(prefix="a-") as folder:
        [late_s, _] = run_ranks(measure_here, 2, tmp_path=Path(folder), place=place)
    return float(str(late_s))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.abort", description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="of which the median counts")
    chosen = parser.parse_args()
    print(", ".join(f"{name}: {value}" for name, value in describe_machine().items()))
    is_met = True
    print(f"{'':<18} {'median':>8} {'worst':>8} {'target':>8}")
    for place in PLACES:
        found = [measure(place) for _ in range(chosen.times)]
        median = statistics.median(found)
        is_met = is_met and median < _TARGET_S
        cells = [f"{seconds * 1e3:>5.1f} ms" for seconds in (median, max(found), _TARGET_S)]
        print(f"{place:<18} {' '.join(cells)}", flush=True)
    return 0 if is_met else 1


if __name__ == "__main__":
    from benchmarks import abort  # ranks find the function by the name of its module

    sys.exit(abort.main())
