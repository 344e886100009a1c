"""CPU sets of ranks on hosts that are made up of the files a kernel would show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distdbg.errors import ConfigError
from distdbg.launch.machine import allowed_cpus, cpus_of_ranks, read_topology_files
from distdbg.launch.numa import NumaBinding, bind_ranks, parse_cpus, parse_topology

NODE, SOCKET = NumaBinding.NODE, NumaBinding.SOCKET
EXCLUSIVE, CORE_COMPLEX = NumaBinding.EXCLUSIVE, NumaBinding.CORE_COMPLEX


def host(
    *,
    sockets: int = 1,
    nodes_per_socket: int = 1,
    cores: int = 4,
    threads: int = 1,
    cores_per_cache: int = 0,
    offline: frozenset[int] = frozenset(),
) -> dict[str, str]:
    """Files of a host with `cores` per node; SMT siblings are numbered after all first threads."""
    nodes = sockets * nodes_per_socket
    total = nodes * cores
    files: dict[str, str] = {}
    of_node: dict[int, list[int]] = {node: [] for node in range(nodes)}
    for core in range(total):
        siblings = [core + total * thread for thread in range(threads)]
        online = [cpu for cpu in siblings if cpu not in offline]
        per_cache = cores_per_cache or cores
        first = core // per_cache * per_cache
        shared = [c + total * t for c in range(first, first + per_cache) for t in range(threads)]
        for cpu in siblings:
            folder = f"cpu/cpu{cpu}"
            if cpu in offline:
                files[f"{folder}/cache/index0/level"] = "1\n"  # a folder may stay
                continue
            of_node[core // cores].append(cpu)
            files[f"{folder}/topology/physical_package_id"] = (
                f"{core // cores // nodes_per_socket}\n"
            )
            files[f"{folder}/topology/thread_siblings_list"] = say(online)
            for index, (level, kind, cpus) in enumerate(
                [(1, "Data", online), (1, "Instruction", online), (3, "Unified", shared)]
            ):
                files[f"{folder}/cache/index{index}/level"] = f"{level}\n"
                files[f"{folder}/cache/index{index}/type"] = f"{kind}\n"
                files[f"{folder}/cache/index{index}/shared_cpu_list"] = say(cpus)
    for node, cpus in of_node.items():
        files[f"node/node{node}/cpulist"] = say(cpus)
    files["cpu/online"] = say(cpu for cpus in of_node.values() for cpu in cpus)
    return files


def say(cpus) -> str:
    return ",".join(map(str, sorted(cpus))) + "\n"


def bind(
    binding: NumaBinding,
    files: dict[str, str],
    nproc: int,
    *,
    allowed: set[int] | None = None,
    gpu_nodes: tuple[int, ...] = (),
) -> list[set[int]]:
    topology = parse_topology(files)
    bound = bind_ranks(
        binding,
        topology,
        allowed=set(topology) if allowed is None else allowed,
        nproc=nproc,
        gpu_nodes=gpu_nodes,
    )
    return [set(cpus) for cpus in bound]


def test_a_list_of_cpus_is_ranges_and_numbers() -> None:
    assert parse_cpus("0-2,5,7-8\n") == {0, 1, 2, 5, 7, 8}
    assert parse_cpus("\n") == set()


def test_on_one_node_all_ranks_have_all_its_cpus() -> None:
    for binding in (NODE, SOCKET, CORE_COMPLEX):
        assert bind(binding, host(), 3) == [{0, 1, 2, 3}] * 3


def test_ranks_are_spread_over_the_nodes_in_blocks() -> None:
    two = host(sockets=2, cores=2)
    assert bind(NODE, two, 4) == [{0, 1}, {0, 1}, {2, 3}, {2, 3}]
    assert bind(NODE, two, 3) == [{0, 1}, {0, 1}, {2, 3}]
    assert bind(NODE, two, 1) == [{0, 1}]


def test_a_rank_is_near_its_gpu() -> None:
    two = host(sockets=2, cores=2)
    assert bind(NODE, two, 2, gpu_nodes=(1, 0, 0)) == [{2, 3}, {0, 1}]


def test_fewer_gpus_than_ranks_say_nothing_of_the_ranks() -> None:
    two = host(sockets=2, cores=2)
    assert bind(NODE, two, 2, gpu_nodes=(1,)) == [{0, 1}, {2, 3}]


def test_a_socket_is_all_nodes_in_it() -> None:
    files = host(sockets=2, nodes_per_socket=2, cores=2)
    assert bind(NODE, files, 4) == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
    assert bind(SOCKET, files, 4) == [{0, 1, 2, 3}] * 2 + [{4, 5, 6, 7}] * 2
    assert bind(SOCKET, files, 1, gpu_nodes=(3,)) == [{4, 5, 6, 7}]


def test_a_node_with_several_sockets_stays_whole() -> None:
    files = {
        "node/node0/cpulist": "0-3",
        **{f"cpu/cpu{n}/topology/physical_package_id": str(n // 2) for n in range(4)},
    }
    assert bind(SOCKET, files, 2) == [{0, 1, 2, 3}] * 2


def test_exclusive_ranks_share_no_core_and_keep_siblings_together() -> None:
    files = host(cores=4, threads=2)
    assert bind(EXCLUSIVE, files, 2) == [{0, 1, 4, 5}, {2, 3, 6, 7}]
    assert bind(EXCLUSIVE, files, 4) == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]


def test_the_first_ranks_get_the_cores_that_are_left_over() -> None:
    assert bind(EXCLUSIVE, host(cores=5), 3) == [{0, 1}, {2, 3}, {4}]


def test_exclusive_deals_out_each_node_to_its_own_ranks() -> None:
    two = host(sockets=2, cores=4)
    assert bind(EXCLUSIVE, two, 3, gpu_nodes=(1, 0, 1)) == [{4, 5}, {0, 1, 2, 3}, {6, 7}]


def test_more_ranks_than_cores_cannot_be_exclusive() -> None:
    with pytest.raises(ConfigError, match="3 ranks share NUMA node 0, but only 2 of its cores"):
        bind(EXCLUSIVE, host(cores=2, threads=2), 3)


def test_each_rank_gets_a_core_complex_while_there_are_some() -> None:
    files = host(cores=4, threads=2, cores_per_cache=2)
    first, second = {0, 1, 4, 5}, {2, 3, 6, 7}
    assert bind(CORE_COMPLEX, files, 3) == [first, second, first]


def test_a_core_complex_that_a_cgroup_has_cut_comes_last() -> None:
    files = host(cores=4, cores_per_cache=2)
    assert bind(CORE_COMPLEX, files, 2, allowed={1, 2, 3}) == [{2, 3}, {1}]


def test_cpus_that_are_offline_belong_to_nobody() -> None:
    files = host(cores=4, threads=2, offline=frozenset({4, 3, 7}))
    assert bind(NODE, files, 1) == [{0, 1, 2, 5, 6}]
    assert bind(EXCLUSIVE, files, 3) == [{0}, {1, 5}, {2, 6}]


def test_only_cpus_that_may_be_used_are_given() -> None:
    two = host(sockets=2, cores=4)
    assert bind(NODE, two, 2, allowed={1, 2, 6}) == [{1, 2}, {6}]
    assert bind(SOCKET, two, 2, allowed={1, 2, 6}) == [{1, 2}, {6}]
    assert bind(EXCLUSIVE, two, 2, allowed={0, 1}) == [{0}, {1}]


def test_a_gpu_whose_node_may_not_be_used_is_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        bind(NODE, host(sockets=2, cores=2), 2, allowed={0, 1}, gpu_nodes=(0, 1))
    assert caught.value.what == (
        "--numa-binding=node: of NUMA node 1, where GPU 1 is, no CPU may be used here"
    )
    assert caught.value.details == ["the CPUs that may be used are on node 0"]


def test_a_host_that_shows_nothing_but_cpus_is_one_node_of_single_cores() -> None:
    files = {
        "cpu/online": "0-1",
        "cpu/cpu0/topology/thread_siblings_list": "",
        "cpu/cpu1/topology/thread_siblings_list": "",
    }
    assert bind(NODE, files, 2) == [{0, 1}] * 2
    assert bind(EXCLUSIVE, files, 2) == [{0}, {1}]


def test_a_host_that_shows_nothing_cannot_be_bound_to() -> None:
    with pytest.raises(ConfigError, match="the topology of this host's CPUs cannot be read"):
        bind(NODE, {}, 1, allowed={0})


def test_files_are_read_by_their_path_below_the_folder(tmp_path: Path) -> None:
    files = host(sockets=2, cores=2, threads=2)
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert read_topology_files(tmp_path) == files


@pytest.mark.skipif(
    not Path("/sys/devices/system/cpu/online").exists(), reason="this kernel shows no CPUs"
)
def test_this_hosts_own_files_can_be_read() -> None:
    [cpus] = cpus_of_ranks(NODE, 1, os.environ)
    assert cpus
    assert cpus <= allowed_cpus()
