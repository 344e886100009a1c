"""The CPUs and GPUs of this host, and their topology.

Only files are read: no library of a GPU is loaded, so it takes milliseconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from distdbg.launch.nproc import Gpu, visible_gpus
from distdbg.launch.numa import NumaBinding, bind_ranks, parse_topology

_SYSTEM = Path("/sys/devices/system")
_PCI = Path("/sys/bus/pci/devices")
_DRIVER = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")


def allowed_cpus() -> frozenset[int]:
    """The CPUs that this process may use: what taskset, a cgroup or Slurm left it."""
    return frozenset(os.sched_getaffinity(0))


def find_gpus(driver: Path = _DRIVER, devices: Path = _DEVICES) -> tuple[Gpu, ...]:
    """The GPUs whose device files this host has, in the order of the bus; none without any.

    A container sees all GPUs in the driver's folder, but has device files of its own ones only.
    """
    minors = {
        int(match[1])
        for name in _list(devices)
        if (match := re.fullmatch(r"nvidia(\d+)", name)) is not None
    }
    known = []
    for pci in sorted(_list(driver)):
        text = _read(driver / pci / "information")
        fields = dict(re.findall(r"^([^:\n]+):[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))
        minor = fields.get("Device Minor", "")
        if minor.isdecimal() and int(minor) in minors:
            known.append(Gpu(minor=int(minor), pci=pci.lower(), uuid=fields.get("GPU UUID", "")))
    return tuple(known) or tuple(Gpu(minor=minor) for minor in sorted(minors))


def cpus_of_ranks(
    binding: NumaBinding, nproc: int, environ: Mapping[str, str]
) -> tuple[frozenset[int], ...]:
    """The CPUs of each local rank on this host; ConfigError where a rank would get none."""
    gpus = visible_gpus(find_gpus(), environ.get("CUDA_VISIBLE_DEVICES"))
    return bind_ranks(
        binding,
        parse_topology(read_topology_files()),
        allowed=allowed_cpus(),
        nproc=nproc,
        gpu_nodes=[read_gpu_node(gpu) for gpu in gpus],
    )


def read_gpu_node(gpu: Gpu, devices: Path = _PCI) -> int:
    """The NUMA node of a GPU; 0 where there is but one, or nothing is known."""
    text = _read(devices / gpu.pci / "numa_node").strip() if gpu.pci else ""
    return max(int(text), 0) if re.fullmatch(r"-?\d+", text) else 0


def read_topology_files(system: Path = _SYSTEM) -> dict[str, str]:
    """The text of the files that `numa.parse_topology` wants, by path below `system`."""
    paths = [*system.glob("node/node*/cpulist"), system / "cpu/online"]
    for cpu in system.glob("cpu/cpu[0-9]*"):
        paths += [cpu / "topology/physical_package_id", cpu / "topology/thread_siblings_list"]
        for cache in cpu.glob("cache/index[0-9]*"):
            paths += [cache / "level", cache / "type", cache / "shared_cpu_list"]
    texts = {str(path.relative_to(system)): _read(path) for path in paths}
    return {path: text for path, text in texts.items() if text}


def _list(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # not there, or an offline CPU
