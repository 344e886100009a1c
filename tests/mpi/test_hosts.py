"""Groups over MPICH between two hosts, made of namespaces, over each of its two ways into a network."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from distdbg.testing.network import Network
from tests.mpi.launchers import environment_of, find_file

pytest.importorskip("mpi4py")
pytestmark = [pytest.mark.ranks, pytest.mark.slow, pytest.mark.usefixtures("can_make_hosts")]

PROGRAM = Path(__file__).parent / "programs" / "between_hosts.py"
LIMIT_S = 80
#: A host has one network, and MPICH and its libraries look for others too.
NETWORKS = {
    "ucx": {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "t0"},
    "ofi": {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "t0"},
}


def run_on(network: Network, command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Start two ranks on each host, and return how it ended and what was printed.

    The launcher says what is to be started on each host, and waits for it: none can be reached by ssh.
    """
    first = network.hosts[0]
    places = ",".join(f"{host.address}:2" for host in network.hosts)
    hydra = [str(find_file("mpich", ["mpiexec.hydra"], "bin")), "-launcher", "manual"]
    options = ["-iface", "t0", "-localhost", first.address, "-hosts", places, "-n", "4"]
    launcher = first.start([*hydra, *options, *command], environment)
    assert launcher.stdout is not None
    assert launcher.stderr is not None
    printed: list[str] = []
    started = [launcher]
    readers = [_read(launcher.stderr, printed)]
    for line in launcher.stdout:
        if "HYDRA_LAUNCH_END" in line:
            break
        if line.startswith("HYDRA_LAUNCH:"):
            host = network.hosts[len(started) - 1]
            started.append(host.start(line.partition(":")[2].split(), environment))
    for process in started:
        assert process.stdout is not None
        readers.append(_read(process.stdout, printed))
        if process is not launcher:
            assert process.stderr is not None
            readers.append(_read(process.stderr, printed))
    code = launcher.wait(LIMIT_S)
    for reader in readers:
        reader.join(LIMIT_S)
    return code, "".join(printed)


def _read(lines: Iterable[str], printed: list[str]) -> threading.Thread:
    reader = threading.Thread(target=lambda: printed.extend(lines), daemon=True)
    reader.start()
    return reader


@pytest.mark.parametrize("name", NETWORKS)
def test_all_checks_pass_between_hosts_of_mpich(tmp_path: Path, name: str) -> None:
    environment = environment_of("mpich") | NETWORKS[name] | {"DISTDBG_SOCKET_IFNAME": "t0"}
    with Network(2, str(tmp_path)) as network:
        for host in network.hosts:  # UCX asks it for the host's networks
            done = host.start(["mount", "-t", "sysfs", "none", "/sys"]).wait(LIMIT_S)
            assert done == 0
        command = [sys.executable, str(PROGRAM), str(tmp_path)]
        code, printed = run_on(network, command, environment)
    assert code == 0, printed
    for rank in range(4):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found == {"size": 4, "failures": {}}
