"""A program that starts MPI itself, by its import of mpi4py: `python bound.py FOLDER`.

First its ranks are of our own engine, and make a group over MPI beside it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import distdbg as dist
from distdbg.errors import DistError
from distdbg.runtime.backends.mpi.starting import started
from distdbg.testing.conformance.group import Api, run_checks


def caught(function: Any) -> str:
    try:
        function()
    except DistError as error:
        return f"{type(error).__name__}: {error.what}"
    return "nothing"


def main(folder: str) -> None:
    dist.init_process_group()
    rank = dist.get_rank()
    found: dict[str, Any] = {}
    found["too few"] = "nothing"
    if rank < 2:  # its members alone make it
        found["too few"] = caught(
            lambda: dist.new_group([0, 1], backend="mpi", use_local_synchronization=True)
        )
    beside = dist.new_group(backend="mpi")
    x = np.ones(2)
    dist.all_reduce(x, group=beside)
    found["beside"] = [dist.get_backend(), dist.get_backend(beside), x[0]]
    dist.destroy_process_group()

    dist.init_process_group("mpi")
    library = started()
    assert library is not None
    found["is threaded"] = library.is_threaded
    found["failures"] = run_checks(Api(dist, np.array, np.ndarray.tolist))
    found["differs"] = caught(lambda: dist.all_reduce(np.ones(3 if rank == 1 else 4)))
    dist.destroy_process_group()
    assert not MPI.Is_finalized()

    dist.init_process_group("mpi")
    MPI.Finalize()
    found["after its end"] = [caught(lambda: dist.all_reduce(np.ones(1)))]
    dist.destroy_process_group()
    found["after its end"].append(caught(lambda: dist.init_process_group("mpi")))
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
