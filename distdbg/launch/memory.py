"""Tells an OOM kill from another SIGKILL, whose exit status is the same; and the memory limit of the ranks.

The kernel counts such kills for every memory cgroup, before the victim ends. Who dies by SIGKILL,
was not asked to, and in whose cgroup the count has gone up since it was last read, was one of them.
A dead process no longer tells its cgroup, so that is noted while it runs.

    cgroup v1    <mount>/<path>/memory.oom_control      its own processes only
    cgroup v2    <mount>/<path>/memory.events.local     likewise; older kernels: memory.events
    neither      /proc/vmstat                           of the whole host

All of them hold a line `oom_kill <count>`.
"""

from __future__ import annotations

import re
import resource
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from distdbg.launch.ended import EndedChild
from distdbg.record.durations import nbytes_text

_WHOLE_HOST = Path("/proc/vmstat")
_FILES = ("memory.events.local", "memory.events", "memory.oom_control")
#: Processes rarely move, and a count that is read late says the same.
_REFRESH_NS = 1_000_000_000
#: A flag of the kernel's: set first of all when a process ends.
_PF_EXITING = 0x4
#: How long a victim may take to end: it frees its memory meanwhile. A kill that nobody's end has
#: claimed by then was that of another process of the cgroup.
_ENDING_NS = 10_000_000_000


_LIMIT_FILES: Final = ("memory.max", "memory.limit_in_bytes")
#: cgroup v1 writes a number near 2^63 for none.
_NO_LIMIT: Final = 1 << 60
_MAX_PARENTS: Final = 32


@dataclass(slots=True)
class _Counter:
    """One cgroup's count, and the kills that have not been told from others' ends yet."""

    last: int
    unclaimed: list[int] = field(default_factory=list)
    """When each of them was noticed."""


class OomWatch:
    """Follows the counts of the cgroups that the given processes are in."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self._places: dict[str, Path] = {}
        self._counters: dict[Path, _Counter] = {}
        self._refreshed_ns = 0

    def add(self, name: str, pid: int) -> None:
        """Follow a process that has just been started."""
        self._pids[name] = pid
        self._locate(name)

    def refresh(self, now_ns: int) -> None:
        """Read the counts, and where the processes are now; at most once a second, the rest is free."""
        if now_ns - self._refreshed_ns < _REFRESH_NS:
            return
        self._refreshed_ns = now_ns
        for name in self._pids:
            self._locate(name)
        for path, counter in self._counters.items():
            _update(counter, read_kills(path), now_ns)

    def find_victims(
        self, ends: Iterable[EndedChild], now_ns: int, asked: Collection[str] = ()
    ) -> frozenset[str]:
        """The names of those that the kernel killed for memory; all are followed no longer.

        `asked` are those that the caller killed itself. Call it with all that ended together, and
        soon.
        """
        places: dict[Path, dict[str, int]] = {}
        for ended in ends:
            self._pids.pop(ended.name, None)
            path = self._places.pop(ended.name, None)
            if path is not None and ended.signal == signal.SIGKILL and ended.name not in asked:
                places.setdefault(path, {})[ended.name] = ended.max_rss_nbytes
        found: set[str] = set()
        for path, used in places.items():
            counter = self._counters[path]
            _update(counter, read_kills(path), now_ns)
            victims = choose_victims(used, len(counter.unclaimed))
            del counter.unclaimed[: len(victims)]
            found |= victims
        return frozenset(found)

    def _locate(self, name: str) -> None:
        path = find_counter(self._pids[name])
        if path is None:
            return  # ended: where it was last seen is where it was
        self._places[name] = path
        if path not in self._counters:
            self._counters[path] = _Counter(last=read_kills(path) or 0)


def choose_victims(used: Mapping[str, int], kills: int) -> frozenset[str]:
    """The processes, among those that died by SIGKILL together, that `kills` kills for memory were meant for.

    `used` is the most memory that each had held: the kernel takes the largest.
    """
    by_size = sorted(used, key=lambda name: used[name], reverse=True)
    return frozenset(by_size[:kills])


def find_counter(pid: int) -> Path | None:
    """The file that counts for a process; None when it has ended."""
    try:
        cgroup = Path(f"/proc/{pid}/cgroup").read_text()
        mounts = Path("/proc/self/mountinfo").read_text()
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    if not cgroup or is_exiting(stat):  # the kernel puts it into the root before it is reaped
        return None
    folder = locate_cgroup(cgroup, mounts)
    for name in _FILES if folder is not None else ():
        assert folder is not None
        if read_kills(folder / name) is not None:
            return folder / name
    return _WHOLE_HOST


def is_exiting(stat: str) -> bool:
    """Whether a process has begun to end, by the text of its /proc/<pid>/stat."""
    fields = stat.rpartition(")")[2].split()
    return fields[0] in "ZX" or bool(int(fields[6]) & _PF_EXITING)


def locate_cgroup(cgroup: str, mounts: str) -> Path | None:
    """The folder of the cgroup that accounts a process's memory.

    `cgroup` is the text of /proc/<pid>/cgroup, `mounts` that of /proc/self/mountinfo. None when no
    such folder is mounted here.
    """
    paths: dict[str, str] = {}
    for line in cgroup.splitlines():
        _, controllers, place = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = place  # of version 2: the one without a name
    path: str | None
    for mount in mounts.splitlines():
        left, _, right = mount.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup" and "memory" in options.split(","):
            path = paths.get("memory")
        elif kind == "cgroup2" and "memory" not in paths:
            path = paths.get("")
        else:
            continue
        root, point = (_unescape(text) for text in left.split(" ")[3:5])
        if path is not None and PurePosixPath(path).is_relative_to(root):
            return Path(point, PurePosixPath(path).relative_to(root))
    return None


def read_kills(path: Path) -> int | None:
    """How many processes have been killed for memory; None when the file does not tell."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(b"oom_kill ")), None)


def _update(counter: _Counter, kills: int | None, now_ns: int) -> None:
    counter.unclaimed = [seen for seen in counter.unclaimed if now_ns - seen <= _ENDING_NS]
    if kills is not None:  # else the cgroup is gone, and with it the count
        counter.unclaimed += [now_ns] * (kills - counter.last)
        counter.last = kills


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def memory_limit() -> str:
    """'2.0 GiB (cgroup)', the smallest of all limits; '' where there is none. Ranks inherit it."""
    limits = [(nbytes, "cgroup") for nbytes in _cgroup_limits()]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append((soft, "ulimit -v"))
    return name_limit(limits)


def name_limit(limits: Iterable[tuple[int, str]]) -> str:
    """The smallest one in words. Pure."""
    nbytes, whose = min(limits, default=(_NO_LIMIT, ""))
    if nbytes >= _NO_LIMIT:
        return ""
    return f"{nbytes_text(nbytes)} ({whose})"


def _cgroup_limits() -> Iterator[int]:
    try:
        cgroup = Path("/proc/self/cgroup").read_text()
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return
    folder = locate_cgroup(cgroup, mounts)
    for _ in range(_MAX_PARENTS):
        if folder is None or len(folder.parts) < 3:
            return
        for name in _LIMIT_FILES:
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():
                yield int(text)
        folder = folder.parent
