"""Which CPUs each local rank is kept on, for --numa-binding. Pure: the host's files are an argument.

    node          all CPUs of the NUMA node of the rank's GPU
    socket        all CPUs of all nodes of that node's socket
    exclusive     the node's cores are dealt out to its ranks, no core to two; SMT siblings stay together
    core-complex  the cores that share one last-level cache, another one for each rank while there are

The rank's GPU is the one with its local rank as number. Where there are fewer GPUs than ranks, the
ranks are spread over the nodes in blocks: 4 ranks on 2 nodes are 0,1 and 2,3.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from distdbg.errors import ConfigError

_FLAG = "--numa-binding"


class NumaBinding(StrEnum):
    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """One CPU that is online, and what it shares with others."""

    number: int
    node: int
    socket: int
    core: int
    """The least number among its SMT siblings."""
    cache: int
    """The least number among those that share its last-level cache."""


Topology = Mapping[int, Cpu]


def parse_topology(files: Mapping[str, str]) -> dict[int, Cpu]:
    """Read what `machine.read_topology_files` found, by number of the CPU.

    What is missing there is taken for simple: one node, one socket, no SMT, one cache.
    """
    node_of = {
        cpu: int(match[1])
        for path, text in files.items()
        if (match := re.fullmatch(r"node/node(\d+)/cpulist", path)) is not None
        for cpu in parse_cpus(text)
    }
    numbers = set(node_of)
    for path in files:
        if match := re.match(r"cpu/cpu(\d+)/", path):
            numbers.add(int(match[1]))
    # An offline CPU has a folder, but is in no list.
    if "cpu/online" in files:
        numbers &= parse_cpus(files["cpu/online"])
    return {
        number: Cpu(
            number=number,
            node=node_of.get(number, 0),
            socket=_read_socket(files, number),
            core=_least(files.get(f"cpu/cpu{number}/topology/thread_siblings_list"), number),
            cache=_read_cache(files, number),
        )
        for number in sorted(numbers)
    }


def parse_cpus(text: str) -> set[int]:
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        numbers.update(range(int(low), int(high or low) + 1))
    return numbers


def bind_ranks(
    binding: NumaBinding,
    topology: Topology,
    *,
    allowed: Iterable[int],
    nproc: int,
    gpu_nodes: Sequence[int] = (),
) -> tuple[frozenset[int], ...]:
    """Return the CPUs of each local rank; ConfigError where a rank would get none.

    `allowed` are the CPUs that the launcher itself may use, `gpu_nodes` the node of each visible GPU.
    """
    permitted = set(allowed)
    cpus = [cpu for number, cpu in topology.items() if number in permitted]
    if not cpus:
        raise ConfigError(f"{_FLAG}={binding}: the topology of this host's CPUs cannot be read")
    nodes = _place(cpus, nproc, gpu_nodes)
    _check_nodes(binding, cpus, nodes, has_gpus=len(gpu_nodes) >= nproc)
    bound: list[frozenset[int]] = []
    for rank, node in enumerate(nodes):
        near = [cpu for cpu in cpus if cpu.node == node]
        beside = [other for other, its_node in enumerate(nodes) if its_node == node]
        place = beside.index(rank)
        match binding:
            case NumaBinding.NODE:
                chosen = near
            case NumaBinding.SOCKET:
                chosen = _on_socket(cpus, near)
            case NumaBinding.EXCLUSIVE:
                chosen = _deal(near, node, place, beside)
            case NumaBinding.CORE_COMPLEX:
                chosen = _complex(near, place)
            case _:
                assert_never(binding)
        bound.append(frozenset(cpu.number for cpu in chosen))
    return tuple(bound)


def _place(cpus: Sequence[Cpu], nproc: int, gpu_nodes: Sequence[int]) -> list[int]:
    """The node of each rank."""
    if len(gpu_nodes) >= nproc:
        return list(gpu_nodes[:nproc])
    usable = sorted({cpu.node for cpu in cpus})
    return [usable[rank * len(usable) // nproc] for rank in range(nproc)]


def _check_nodes(
    binding: NumaBinding, cpus: Sequence[Cpu], nodes: Sequence[int], *, has_gpus: bool
) -> None:
    usable = {cpu.node for cpu in cpus}
    for rank, node in enumerate(nodes):
        if node not in usable:
            where = f", where GPU {rank} is," if has_gpus else ""
            raise ConfigError(
                f"{_FLAG}={binding}: of NUMA node {node}{where} no CPU may be used here",
                details=[f"the CPUs that may be used are on {_say_nodes(usable)}"],
                hint=f"leave out {_FLAG}, or let this job use CPUs near its GPUs",
            )


def _say_nodes(nodes: Iterable[int]) -> str:
    ordered = sorted(nodes)
    return f"node{'s' if len(ordered) > 1 else ''} {', '.join(map(str, ordered))}"


def _on_socket(cpus: Sequence[Cpu], near: Sequence[Cpu]) -> list[Cpu]:
    # By nodes, as torchrun: where one node has several sockets, that node is the unit.
    firsts: dict[int, Cpu] = {}
    for cpu in cpus:
        firsts.setdefault(cpu.node, cpu)
    nodes = {node for node, first in firsts.items() if first.socket == near[0].socket}
    return [cpu for cpu in cpus if cpu.node in nodes]


def _deal(near: Sequence[Cpu], node: int, place: int, beside: Sequence[int]) -> list[Cpu]:
    cores = sorted({cpu.core for cpu in near})
    if len(cores) < len(beside):
        raise ConfigError(
            f"{_FLAG}=exclusive: {len(beside)} ranks share NUMA node {node}, but only "
            f"{len(cores)} of its cores may be used",
            hint=f"start fewer ranks on this host, or use {_FLAG}=node",
        )
    # The first ones get one more where it does not come out even.
    share, rest = divmod(len(cores), len(beside))
    begin = place * share + min(place, rest)
    mine = set(cores[begin : begin + share + (place < rest)])
    return [cpu for cpu in near if cpu.core in mine]


def _complex(near: Sequence[Cpu], place: int) -> list[Cpu]:
    complexes: defaultdict[int, list[Cpu]] = defaultdict(list)
    for cpu in near:
        complexes[cpu.cache].append(cpu)
    # The largest first: of one that a cgroup has cut there may be little left.
    ordered = sorted(complexes.values(), key=lambda found: (-len(found), found[0].number))
    return ordered[place % len(ordered)]


def _read_socket(files: Mapping[str, str], number: int) -> int:
    text = files.get(f"cpu/cpu{number}/topology/physical_package_id", "").strip()
    return max(int(text), 0) if re.fullmatch(r"-?\d+", text) else 0


def _read_cache(files: Mapping[str, str], number: int) -> int:
    found = []
    for index in range(10):
        folder = f"cpu/cpu{number}/cache/index{index}"
        level, kind = files.get(f"{folder}/level", "").strip(), files.get(f"{folder}/type", "")
        if level.isdecimal() and kind.strip() in ("Unified", "Data"):
            found.append((int(level), files.get(f"{folder}/shared_cpu_list", "")))
    # Without any cache told, all of a node are taken for one complex.
    return _least(max(found)[1], number) if found else 0


def _least(text: str | None, otherwise: int) -> int:
    return min(parse_cpus(text or ""), default=otherwise)
