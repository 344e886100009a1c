"""The program of every rank: `python -m benchmarks.rank '<json order>'`.

Rank 0 writes the results as JSON lines to the file of the order, one line per case, so that what
was measured before a crash is kept.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.libraries import open_library
from benchmarks.machine import current_cpu, die_with_parent
from benchmarks.measure import Limits, measure

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Who says which rank this is: launch.py, Open MPI's launcher, MPICH's launcher."""

SETTLE_S = 1.0
"""What starts beside a job, as distdbg's agent does, takes a core for its first half second. A row is what an
op takes after that, for every library."""


def main(text: str) -> None:
    die_with_parent(signal.SIGKILL)
    order = json.loads(text)
    rank = next(int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ)
    if order["pin"]:
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[rank % len(allowed)]})
    library = open_library(order["library"], rank, order["world_size"], order["port"])
    limits = Limits(**order["limits"])
    time.sleep(SETTLE_S)
    with Path(order["results"] if library.rank == 0 else os.devnull).open("w") as out:
        for kind, nbytes in order["cases"]:
            before = resource.getrusage(resource.RUSAGE_SELF)
            times = measure(library, Case(kind, nbytes), limits)
            after = resource.getrusage(resource.RUSAGE_SELF)
            # Where each rank ran at the end of the case: the place of a rank holds its CPU number.
            places = [-1.0] * library.world_size
            places[library.rank] = current_cpu()
            switches = after.ru_nivcsw - before.ru_nivcsw
            *cpus, most_switches = library.maxima([*places, switches])
            line = {
                "kind": kind,
                "nbytes": nbytes,
                "times_s": times,
                "cpus": [int(cpu) for cpu in cpus],
                "involuntary_switches": int(most_switches),
            }
            print(json.dumps(line), file=out, flush=True)
    library.close()


if __name__ == "__main__":
    main(sys.argv[1])
