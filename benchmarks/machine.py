"""What the kernel tells us, without which a time says nothing; the signal of a parent's death."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when whoever started it ends, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def current_cpu() -> int:
    """The CPU that this process last ran on (field 39 of /proc/self/stat)."""
    stat = Path("/proc/self/stat").read_text()
    return int(stat.rpartition(")")[2].split()[36])


def can_read_other_processes() -> bool:
    """Whether process_vm_readv of a child is allowed, which single-copy transfers need."""
    word = ctypes.c_uint64(0x5EED)
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:  # the child only waits: its copy of `word` is at the same address
        os.close(tell)
        os.read(ready, 1)
        os._exit(0)
    try:
        copy = ctypes.c_uint64()
        libc = ctypes.CDLL(None, use_errno=True)
        local = _IoVec(ctypes.addressof(copy), 8)
        remote = _IoVec(ctypes.addressof(word), 8)
        got = libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        return bool(got == 8 and copy.value == word.value)
    finally:
        os.close(ready)
        os.close(tell)
        os.waitpid(pid, 0)


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of all cores so far: of everybody, and of this process and those it has waited for.

    What a host takes from its virtual machines for others counts as used by others.
    """

    at_s: float
    everybody_s: float
    own_s: float

    def others_since(self, before: Usage) -> float:
        """How many cores others have used in the meantime."""
        others_s = (self.everybody_s - before.everybody_s) - (self.own_s - before.own_s)
        return max(0.0, others_s / (self.at_s - before.at_s))


def read_usage() -> Usage:
    """As of now."""
    first = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, stolen = (int(ticks) for ticks in first[:8])
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Usage(
        time.monotonic(),
        (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK"),
        sum(each.ru_utime + each.ru_stime for each in used),
    )


def cpu_model() -> str:
    """The processor's own name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def describe_machine() -> dict[str, str]:
    """Name and value of each fact, in the order to print."""
    allowed = sorted(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return {
        "cpu": f"{cpu_model()}, {os.cpu_count()} cores, this process may use {allowed}",
        "kernel": platform.release(),
        "load before": f"{load:.2f}" + (" (not quiet: expect noise)" if load > 0.5 else ""),
        "process_vm_readv": "allowed" if can_read_other_processes() else "forbidden",
        "python": platform.python_version(),
    }
