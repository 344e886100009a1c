"""Where the records of a run go, and how long they stay.

    DISTDBG_RUN_DIR                       this folder, for one run at a time
    else  <tempdir>/distdbg-<uid>/        private to the user
              20261121-130501-1f09ac/     one folder per run, oldest first by name
              latest -> 20261121-...      the newest

Each rank finds its place alone, so that it works on any number of hosts and in any order. A writer
holds a lock on its record for as long as its process lives; nothing that is locked is removed or
replaced. What cannot be done gives the words for one warning: the job runs on, unrecorded.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from distdbg import config
from distdbg.errors import RecordError
from distdbg.record.entries import Header
from distdbg.record.reader import RecordFile

LATEST: Final = "latest"
SUFFIX: Final = ".ddr"
_STARTING_NS: Final = 3_600 * 10**9


def record_name(rank: int) -> str:
    """The file of a rank: 'rank00012.ddr'."""
    return f"rank{rank:05}{SUFFIX}"


def new_run_name(wall_ns: int | None = None) -> str:
    """Return the name of a new run: when it began, and something random."""
    seconds = (time.time_ns() if wall_ns is None else wall_ns) // 10**9
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds)) + "-" + os.urandom(3).hex()


def user_folder(tempdir: str | None = None) -> Path:
    """The private folder of this user; it need not exist."""
    return Path(tempdir or tempfile.gettempdir()) / f"distdbg-{os.getuid()}"


def place_record(
    run: str, rank: int, environ: Mapping[str, str] | None = None, *, tempdir: str | None = None
) -> tuple[Path | None, str]:
    """Return the path of a rank's record, in a folder that is there; else None, and why.

    In DISTDBG_RUN_DIR the records of an earlier run are removed; while one of them is being written,
    there is no place. Elsewhere the first rank of a host makes room by removing old runs.
    """
    run_dir = config.read_setting("DISTDBG_RUN_DIR", environ)
    try:
        if run_dir is not None:
            folder = Path(str(run_dir)).absolute()
            why = _take_over(folder, run)
            if why:
                return None, why
        else:
            parent = user_folder(tempdir)
            folder = parent / run
            _make_private(parent)
            is_first = _make_folder(folder)
            _point_latest(parent, run)
            if is_first:
                most_nbytes = config.read_int("DISTDBG_RUNS_NBYTES", environ)
                prune_runs(parent, most_nbytes, wall_ns=time.time_ns(), keep=[run])
        if not os.access(folder, os.W_OK | os.X_OK):
            return None, f"{folder}: not writable"
    except OSError as error:
        return None, f"{error.filename or run_dir or 'temporary files'}: {error.strerror}"
    return folder / record_name(rank), ""


def is_live(record: Path) -> bool:
    """Whether a process holds the record open for writing; False for one that is gone."""
    try:
        fd = os.open(record, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # Shared: another rank may be asking the same.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def prune_runs(
    parent: Path, most_nbytes: int, *, wall_ns: int, keep: Iterable[str] = ()
) -> list[str]:
    """Remove the oldest runs until the rest is at most `most_nbytes`; return their names.

    A run of which a record is live stays, and so does what `keep` names; both count. A folder
    without records is removed when it is an hour old: until then its ranks may be starting.
    """
    kept = {*keep, _read_latest(parent)}
    runs = _list_runs(parent)
    sizes = {run: _nbytes_of(parent / run) for run in runs}
    total = sum(sizes.values())
    removed = []
    for run in runs:
        if run in kept:
            continue
        records = _records(parent / run)
        is_due = total > most_nbytes if records else _is_old(parent / run, wall_ns)
        if is_due and not any(map(is_live, records)) and _remove_run(parent / run):
            removed.append(run)
            total -= sizes[run]
    return removed


# ---------------------------------------------------------------------------------------- making


def _take_over(folder: Path, run: str) -> str:
    """Remove the records of other runs; the words for why it may not be done."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in _records(folder):
        if path.suffix != SUFFIX:
            continue  # another rank is making it
        header = _read_header(path)
        if header is not None and header.run == run:
            continue
        # A record that this process holds is of a run that it has begun before.
        if is_live(path) and (header is None or header.pid != os.getpid()):
            name = path.name
            return f"{folder} holds {name} of a run that is not over; one folder is for one run"
        path.unlink(missing_ok=True)
    return ""


def _read_header(path: Path) -> Header | None:
    try:
        with RecordFile(path, salvage=True) as record:
            return record.header
    except RecordError:
        return None


def _make_folder(folder: Path) -> bool:
    """Whether it was not there before."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def _make_private(folder: Path) -> None:
    """Make or check the user's folder: no other user may have put it, or a link, in its place."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode):
            raise PermissionError(1, "is not a folder", str(folder)) from None
        if about.st_uid != os.getuid():
            raise PermissionError(1, "belongs to another user", str(folder)) from None
        if about.st_mode & 0o077:
            folder.chmod(0o700)


def _point_latest(parent: Path, name: str) -> None:
    if _read_latest(parent) == name:
        return
    draft = parent / f".{LATEST}-{os.urandom(6).hex()}"
    try:
        draft.symlink_to(name)
        draft.replace(parent / LATEST)
    except OSError:
        # The run is recorded all the same; only the short name is missing.
        draft.unlink(missing_ok=True)


# -------------------------------------------------------------------------------------- removing


def _list_runs(parent: Path) -> list[str]:
    try:
        with os.scandir(parent) as found:
            names = [
                entry.name
                for entry in found
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            ]
    except OSError:
        return []
    return sorted(names)


def _read_latest(parent: Path) -> str:
    try:
        return os.readlink(parent / LATEST)
    except OSError:
        return ""


def _records(folder: Path) -> list[Path]:
    """Also those that are being made and have not got their name yet."""
    try:
        return sorted(folder.glob(f"rank*{SUFFIX}*"))
    except OSError:
        return []


def _is_old(folder: Path, wall_ns: int) -> bool:
    try:
        return wall_ns - folder.lstat().st_mtime_ns > _STARTING_NS
    except OSError:
        return False


def _nbytes_of(folder: Path) -> int:
    total = 0
    try:
        with os.scandir(folder) as found:
            for entry in found:
                # Blocks, not length: what a file takes from the disk.
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        pass  # another pruner was here first
    return total


def _remove_run(folder: Path) -> bool:
    """Whether the folder is gone. What another pruner removes meanwhile is no error."""
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if not entry.is_dir(follow_symlinks=False):
                    (folder / entry.name).unlink(missing_ok=True)
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # a folder that somebody put there: not ours to remove
    return True
