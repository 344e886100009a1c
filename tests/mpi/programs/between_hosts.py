"""All checks of groups, on ranks of several hosts: `python between_hosts.py FOLDER`.

Each rank writes what failed.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np

import distdbg as dist
from distdbg.testing.conformance.group import Api, run_checks


def main(folder: str) -> None:
    dist.init_process_group("mpi", timeout=timedelta(seconds=40))
    failures = run_checks(Api(dist, array=np.array, values=np.ndarray.tolist))
    found = {"size": dist.get_world_size(), "failures": failures}
    Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
