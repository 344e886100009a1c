"""How much memory this host, or the cgroup of this process, has, and how much of it is free.

Shared arrays get their pages when they are made: a full machine is an error there, and would be a kill later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_ROOT = Path("/sys/fs/cgroup")
#: Limit and use, as cgroup v2 and v1 call them.
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
#: What the kernel takes back before it runs out.
_CACHES = frozenset({"active_file", "inactive_file", "total_active_file", "total_inactive_file"})


class MemoryRoom(NamedTuple):
    """Bytes; `whose`: 'this host' or 'its cgroup'."""

    total: int
    free: int
    whose: str


def read_memory() -> MemoryRoom:
    """Read the memory of the host or the cgroup, whichever has less free."""
    facts = parse_table(Path("/proc/meminfo").read_text())
    total = facts.get("MemTotal", 0) << 10
    rooms = [MemoryRoom(total, facts.get("MemAvailable", 0) << 10, "this host")]
    try:
        text = Path("/proc/self/cgroup").read_text()
    except OSError:
        text = ""
    for folder in cgroup_folders(text):
        for names in _FILES:
            found = _read_cgroup(folder, names)
            if found is not None and found.total < total:
                rooms.append(found)
    return MemoryRoom(
        min(room.total for room in rooms), *min((room.free, room.whose) for room in rooms)
    )


def parse_table(text: str) -> Mapping[str, int]:
    """'MemTotal:  8 kB' or 'active_file 8' on each line, by name."""
    facts = {}
    for line in text.splitlines():
        words = line.replace(":", " ").split()
        if len(words) > 1 and words[1].isdecimal():
            facts[words[0]] = int(words[1])
    return facts


def cgroup_folders(text: str) -> Iterator[Path]:
    """Where the limits of a process may be: its cgroups as /proc/self/cgroup has them, and their parents."""
    for line in text.splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            root = _ROOT
        elif "memory" in controllers.split(","):
            root = _ROOT / "memory"
        else:
            continue
        folder = root / path.lstrip("/")
        yield folder
        yield from (each for each in folder.parents if each.is_relative_to(root))


def _read_cgroup(folder: Path, names: tuple[str, str]) -> MemoryRoom | None:
    try:
        limit, used = ((folder / name).read_text().strip() for name in names)
        stat = parse_table((folder / "memory.stat").read_text())
    except OSError:
        return None
    if not limit.isdecimal() or not used.isdecimal():
        return None  # 'max'
    caches = [nbytes for name, nbytes in stat.items() if name in _CACHES]
    # v1 has each twice, for the cgroup itself and with those below it.
    cached = sum(sorted(caches)[-2:])
    return MemoryRoom(int(limit), max(0, int(limit) - int(used) + cached), "its cgroup")
