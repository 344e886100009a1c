"""The memory limit of the ranks of this launcher: cgroup or ulimit."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from distdbg.launch.memory import locate_cgroup
from distdbg.record.durations import nbytes_text

_FILES: Final = ("memory.max", "memory.limit_in_bytes")
#: cgroup v1 writes a number near 2^63 for none.
_NONE: Final = 1 << 60
_MOST_PARENTS: Final = 32


def memory_limit() -> str:
    """'2.0 GiB (cgroup)', the smallest of all limits; '' where there is none. Ranks inherit it."""
    limits = [(nbytes, "cgroup") for nbytes in _cgroup_limits()]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append((soft, "ulimit -v"))
    return name_limit(limits)


def name_limit(limits: Iterable[tuple[int, str]]) -> str:
    """The smallest one in words. Pure."""
    nbytes, whose = min(limits, default=(_NONE, ""))
    if nbytes >= _NONE:
        return ""
    return f"{nbytes_text(nbytes)} ({whose})"


def _cgroup_limits() -> Iterator[int]:
    try:
        cgroup = Path("/proc/self/cgroup").read_text()
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return
    folder = locate_cgroup(cgroup, mounts)
    for _ in range(_MOST_PARENTS):
        if folder is None or len(folder.parts) < 3:
            return
        for name in _FILES:
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():
                yield int(text)
        folder = folder.parent
