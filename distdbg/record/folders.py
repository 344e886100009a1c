"""Where the records of a run go, and how long they stay.

    DISTDBG_RUN_DIR                       this folder, for one run at a time
    else  <tempdir>/distdbg-<uid>/        private to the user
              20261121-130501-1f09ac/     one folder per run, oldest first by name
              latest -> 20261121-...      the newest
              .agents/                    the sockets of the agents that run

Records lie in the run's folder; a launcher, which may start the ranks more than once, gives each start
a folder of its own there: attempt_0, attempt_1. Each rank finds its place alone, so that it works on
any number of hosts and in any order. A writer holds a lock on its record while its process
runs; nothing that is locked is removed or replaced. What cannot be done gives the words for one
warning: the job runs on, unrecorded.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

from distdbg import config
from distdbg.errors import ConfigError, RecordError
from distdbg.record.trusted_path import check_folder, check_own

if TYPE_CHECKING:
    from distdbg.record.entries import RecordHeader

#: The verdict of the agent, in the folder of a start.
VERDICT_NAME: Final = "verdict.json"
LATEST: Final = "latest"
SUFFIX: Final = ".ddr"
AGENTS: Final = ".agents"
LOGS: Final = "logs"
#: What a launcher holds a lock on: the name of its run is in it.
_HOLD: Final = ".run"
_ATTEMPT: Final = "attempt_"
_STARTING_NS: Final = 3_600 * 10**9
_DAY_NS: Final = 86_400 * 10**9
#: What a control page has room for.
_MAX_NAME_NBYTES: Final = 64

#: How long ranks that begin anew may take to let go of their records, one after the other.
_LETTING_GO_S: Final = 0.5
#: What others write beside the records.
_OF_A_RUN: Final = (
    "ends-*.jsonl",
    "seen-*.jsonl",
    "joins-*.jsonl",
    "agent-*.log",
    VERDICT_NAME,
    "rank*.stacks.txt",
)


def record_name(rank: int) -> str:
    """The file of a rank: 'rank00012.ddr'."""
    return f"rank{rank:05}{SUFFIX}"


def new_run_name(wall_ns: int | None = None) -> str:
    """Return the name of a new run: when it began, and something random."""
    seconds = (time.time_ns() if wall_ns is None else wall_ns) // 10**9
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds)) + "-" + os.urandom(3).hex()


def read_run_name(environ: Mapping[str, str] | None = None) -> str:
    """DISTDBG_RUN, or the name of a new run; ConfigError for what cannot be the name of a folder."""
    given = config.read_setting("DISTDBG_RUN", environ)
    if given is None:
        return new_run_name()
    run = str(given)
    is_name = "/" not in run and "\0" not in run and not run.startswith(".") and run != LATEST
    if not is_name or len(os.fsencode(run)) > _MAX_NAME_NBYTES:
        raise ConfigError(
            f"the variable DISTDBG_RUN={run[:_MAX_NAME_NBYTES]!r} is not valid; "
            "expected the name of a folder",
            details=[f"at most {_MAX_NAME_NBYTES} bytes, no '/', no '.' at the beginning"],
        )
    return run


def temporary_folder() -> str:
    """Python's; where it finds none that can be written to, one where whoever writes is told so."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return os.environ.get("TMPDIR") or "/tmp"


def user_folder(tempdir: str | None = None) -> Path:
    """The private folder of this user; it need not exist."""
    return Path(tempdir or temporary_folder()) / f"distdbg-{os.getuid()}"


def attempt_folder(run_folder: Path, number: int) -> Path:
    """Where a launcher puts the records of its start number `number`, from 0."""
    return run_folder / f"{_ATTEMPT}{number}"


def attempt_number(folder: Path) -> int | None:
    """The number of the start that this folder is for; None when it is not for one."""
    return _number_in(folder.name or folder.absolute().name)


def _number_in(name: str) -> int | None:
    number = name.removeprefix(_ATTEMPT)
    return int(number) if number != name and number.isdecimal() else None


def attempts(run_folder: Path) -> list[Path]:
    """The folders with the records of a run, in the order of time: its own, or one per start."""
    numbered = []
    try:
        with os.scandir(run_folder) as found:
            for entry in found:
                number = _number_in(entry.name)
                if number is not None and entry.is_dir():
                    numbered.append((number, run_folder / entry.name))
    except OSError:
        return []
    return [path for _, path in sorted(numbered)] or [run_folder]


def make_run_folder(
    run: str, environ: Mapping[str, str] | None = None, *, tempdir: str | None = None
) -> tuple[Path, int]:
    """Make the folder of a run before any rank is there: DISTDBG_RUN_DIR, or one of the user's own.

    Also returns a descriptor: nobody removes or takes the folder while it is open. What is left of a
    former run in DISTDBG_RUN_DIR is removed. OSError when it cannot be made, or when that run is not
    over.
    """
    run_dir = config.read_setting("DISTDBG_RUN_DIR", environ)
    if run_dir is None:
        folder = _make_own_folder(run, environ, tempdir)
    else:
        folder = Path(str(run_dir)).absolute()
        _make_named(folder)
    held = os.open(folder / _HOLD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(held).st_mode):
            raise FileExistsError(errno.EEXIST, "is not a file", str(folder / _HOLD))
        if _lock_alone(held) and os.pread(held, 256, 0).decode(errors="replace") != run:
            if why := _take_over(folder, run):
                raise FileExistsError(errno.EEXIST, why, str(folder))
            os.pwrite(held, run.encode(), 0)
            os.ftruncate(held, len(run.encode()))
        fcntl.flock(held, fcntl.LOCK_SH)  # other launchers of the run hold it as well
        if (other := os.pread(held, 256, 0).decode(errors="replace")) != run:
            words = f"it holds run {other}, which is still running; one folder is for one run"
            raise FileExistsError(errno.EEXIST, words, str(folder))
    except BaseException:
        os.close(held)
        raise
    return folder, held


def _lock_alone(held: int, tries: int = 20) -> bool:
    """Whether nobody else holds the folder; who only asks does so for a moment."""
    for _ in range(tries):
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.01)
        else:
            return True
    return False


def is_held(folder: Path, *, tries: int = 20) -> bool:
    """Whether a launcher has the folder; each try but the first takes a hundredth of a second."""
    try:
        fd = os.open(folder / _HOLD, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not _lock_alone(fd, tries)
    finally:
        os.close(fd)


def _make_own_folder(run: str, environ: Mapping[str, str] | None, tempdir: str | None) -> Path:
    parent = user_folder(tempdir)
    folder = parent / run
    _make_private(parent)
    is_first = _make_folder(folder)
    _point_latest(parent, run)
    if is_first:
        most_nbytes = config.read_int("DISTDBG_RUNS_NBYTES", environ)
        days = config.read_int("DISTDBG_RUNS_DAYS", environ)
        prune_runs(parent, most_nbytes, wall_ns=time.time_ns(), keep=[run], most_days=days)
    return folder


def agents_folder(tempdir: str | None = None) -> Path:
    """Where the agents of this user have their sockets; made, and private. ConfigError if it cannot be."""
    parent = user_folder(tempdir)
    try:
        _make_private(parent)
        _make_private(parent / AGENTS)
    except OSError as error:
        raise ConfigError(
            f"no agent of a job can be found: {error.filename}: {error.strerror}",
            hint="set TMPDIR to a folder that you can write to",
        ) from error
    return parent / AGENTS


def agent_socket(run: str, host: str, tempdir: str | None = None) -> Path:
    """Where the agent of a host serves a run; it need not exist."""
    return user_folder(tempdir) / AGENTS / f"{run}@{host}.sock"


def list_runs(tempdir: str | None = None) -> list[Path]:
    """The folders of this user's runs, the oldest first; not those that DISTDBG_RUN_DIR put elsewhere."""
    parent = user_folder(tempdir)
    return [parent / name for name in _list_runs(parent)]


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
            named = Path(str(run_dir)).absolute()
            folder = _restarted(named, os.environ if environ is None else environ)
            if is_held(named):
                return None, f"{named} is held by a launcher; one folder is for one run"
            deadline_s = time.monotonic() + _LETTING_GO_S
            # What is there of an earlier job goes with its first start.
            taken = named if folder.name == attempt_folder(named, 0).name else folder
            while (why := _take_over(taken, run, folder)) and time.monotonic() < deadline_s:
                time.sleep(0.02)  # nothing announces that another rank lets go of an earlier one
            if why:
                return None, why
            if folder != named:
                make_inner(folder)
        else:
            folder = _make_own_folder(run, environ, tempdir)
        if not os.access(folder, os.W_OK | os.X_OK):
            return None, f"{folder}: not writable"
    except OSError as error:
        return None, f"{error.filename or run_dir or 'temporary files'}: {error.strerror}"
    return folder / record_name(rank), ""


def _restarted(named: Path, environ: Mapping[str, str]) -> Path:
    """The folder of this start where torchrun may start the ranks again; else the one that was named."""
    count, most = (
        environ.get(f"TORCHELASTIC_{each}", "") for each in ("RESTART_COUNT", "MAX_RESTARTS")
    )
    if not count.isdecimal() or not most.isdecimal() or int(most) == 0:
        return named
    return named if attempt_number(named) is not None else attempt_folder(named, int(count))


def is_live_run(folder: Path) -> bool:
    """Whether a launcher holds the folder, or a process one of its records."""
    return is_held(folder, tries=1) or any(map(is_live, _records(folder)))


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
    parent: Path, most_nbytes: int, *, wall_ns: int, keep: Iterable[str] = (), most_days: int = 0
) -> list[str]:
    """Remove the oldest runs until the rest is at most `most_nbytes`; return their names.

    So are those to which nothing was added for `most_days`. A run of which a record is live stays, and so
    does what `keep` names; both count. A folder without records is removed when it is an hour old: until
    then its ranks may be starting.
    """
    kept = {*keep, _read_latest(parent)}
    runs = _list_runs(parent)
    sizes = {run: nbytes_of(parent / run) for run in runs}
    total = sum(sizes.values())
    removed = []
    for run in runs:
        is_old = _is_old(parent / run, wall_ns)
        is_over = most_days > 0 and _is_old(parent / run, wall_ns, most_days * _DAY_NS)
        if run in kept or (total <= most_nbytes and not is_old):
            continue  # this is each run of nearly each start of a job: nothing more is looked at
        if total <= most_nbytes and not is_over and _has_records(parent / run):
            continue  # and this each that is kept for longer
        records = _records(parent / run)
        is_due = is_over or total > most_nbytes if records else is_old
        is_live_run = is_due and (is_held(parent / run) or any(map(is_live, records)))
        if is_due and not is_live_run and _remove_run(parent / run):
            removed.append(run)
            total -= sizes[run]
    return removed


def pid_of(record: Path) -> int | None:
    """The process that made a record; None: it cannot be read."""
    header = _read_header(record)
    return None if header is None else header.pid


# ---------------------------------------------------------------------------------------- making


def _take_over(folder: Path, run: str, own: Path | None = None) -> str:
    """Remove the records of other runs; the words for why it may not be done.

    `own`: the folder of this start within it, which other ranks may have made already.
    """
    _make_named(folder)
    for path in _records(folder):
        if path.suffix != SUFFIX:
            continue  # another rank is making it
        header = _read_header(path)
        if header is not None and header.run == run:
            continue
        # A record that this process holds is of a run that it has begun before.
        if is_live(path) and (header is None or header.pid != os.getpid()):
            name = path.name
            return (
                f"{folder} holds {name} of a run that is still running; one folder is for one run"
            )
        path.unlink(missing_ok=True)
    if not _records(folder):
        for each, pattern in product({folder, own or folder}, _OF_A_RUN):
            for path in each.glob(pattern):
                path.unlink(missing_ok=True)
        for at in attempts(folder):
            if at not in (folder, own):
                shutil.rmtree(at, ignore_errors=True)
    return ""


def _read_header(path: Path) -> RecordHeader | None:
    from distdbg.record.reader import RecordFile  # slow to load, for who only looks for a run

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


def _make_named(folder: Path) -> None:
    """A folder that the user has named; PermissionError where others could put files, or links, there."""
    check_folder(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def make_inner(folder: Path) -> None:
    """Make a folder within a run's; PermissionError for a link in its place, or somebody else's folder."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        check_own(folder)  # a file system may say of what it has just made that it is another's


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
        return sorted(path for at in attempts(folder) for path in at.glob(f"rank*{SUFFIX}*"))
    except OSError:
        return []


def _has_records(folder: Path | str) -> bool:
    """Whether `_records` finds any; of hundreds of folders, so until the first, and by names alone."""
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if entry.name.startswith("rank") and SUFFIX in entry.name:
                return True
            if _number_in(entry.name) is not None and _has_records(entry.path):
                return True
    return False


def _is_old(folder: Path, wall_ns: int, than_ns: int = _STARTING_NS) -> bool:
    try:
        return wall_ns - folder.lstat().st_mtime_ns > than_ns
    except OSError:
        return False


def nbytes_of(folder: Path | str) -> int:
    total = 0
    with suppress(OSError), os.scandir(folder) as found:  # another pruner was here first
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                total += nbytes_of(entry.path)
                continue
            # Blocks, not length: what a file takes from the disk.
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def _remove_run(folder: Path) -> bool:
    """Whether the folder is gone. What another pruner removes meanwhile is no error."""
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if not entry.is_dir(follow_symlinks=False):
                    (folder / entry.name).unlink(missing_ok=True)
                elif entry.name == LOGS or entry.name.startswith(_ATTEMPT):
                    shutil.rmtree(entry.path, ignore_errors=True)
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # a folder that somebody put there: not ours to remove
    return True
