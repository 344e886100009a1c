"""What a job may leave behind on its host: processes, shared memory, sockets, files.

Processes are known by a mark in their environment. All that come from a marked one inherit it,
whatever session or parent they move to, and the kernel shows what they were started with:

    mark = new_mark()
    before = take_traces(mark, [folder])
    subprocess.run(job, env={**os.environ, **mark.environment})
    assert not find_leftovers(before)

`leaks` asks the same of this one process.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_VARIABLE = "LEFTOVERS_MARK"
_SHARED_MEMORY = Path("/dev/shm")
#: MPICH and Open MPI, of whoever runs beside.
_OF_AN_MPI = ("mpich_shm_", "sm_segment.", "vader_segment.")


@dataclass(frozen=True, slots=True)
class JobMark:
    """What tells the processes of one job from all others."""

    value: str

    @property
    def environment(self) -> dict[str, str]:
        """To be added to that of the job."""
        return {_VARIABLE: self.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What there is of a job at one moment."""

    mark: JobMark
    folders: tuple[Path, ...]
    processes: dict[int, str]
    """Pid to command."""
    segments: frozenset[str]
    sockets: frozenset[str]
    files: frozenset[str]

    def beyond(self, before: Traces) -> list[str]:
        """Return one line for everything that is there now and was not `before`."""
        lines = [
            f"process: {pid} {command}"
            for pid, command in sorted(self.processes.items())
            if pid not in before.processes
        ]
        pairs = (
            ("shared memory", self.segments - before.segments),
            ("socket", self.sockets - before.sockets),
            ("file", self.files - before.files),
        )
        return lines + [f"{what}: {name}" for what, names in pairs for name in sorted(names)]


def new_mark() -> JobMark:
    """A mark that no other job has."""
    return JobMark(secrets.token_hex(8))


def take_traces(mark: JobMark, folders: Sequence[Path] = ()) -> Traces:
    """Look at the host: what runs under the mark, distdbg's sockets, what lies in the folders."""
    return Traces(
        mark=mark,
        folders=tuple(folders),
        processes=find_marked(mark),
        segments=frozenset(_segments()),
        sockets=frozenset(_sockets()),
        files=frozenset(name for folder in folders for name in _entries(folder)),
    )


def find_leftovers(before: Traces, patience_s: float = 2.0) -> list[str]:
    """Return what is there beyond `before`; what is just ending gets `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        found = take_traces(before.mark, before.folders).beyond(before)
        if not found or time.monotonic() >= deadline:
            return found
        time.sleep(0.02)  # nothing announces the end of processes that are not ours


def find_marked(mark: JobMark) -> dict[int, str]:
    """The living processes under a mark, each with its command line."""
    wanted = f"{_VARIABLE}={mark.value}".encode()
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            # Empty for what has ended and was not waited for: such a one holds nothing any more.
            if wanted not in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                continue
            command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue  # gone, or another user's
        found[int(name)] = command.decode(errors="replace").strip()[:120]
    return found


def _entries(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*")] if folder.is_dir() else []


def _segments() -> list[str]:
    """Shared memory, but for an MPI's: its ranks that are killed leave it, and they are no job's of ours."""
    found = _entries(_SHARED_MEMORY)
    return [name for name in found if not Path(name).name.startswith(_OF_AN_MPI)]


def _sockets() -> list[str]:
    """Unix sockets with a name of ours, those without a file too; not of others who test meanwhile."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []
    names = [line.split()[7] for line in lines if len(line.split()) > 7]
    own = "@", tempfile.gettempdir()
    return [name for name in names if "distdbg" in name and name.startswith(own)]
