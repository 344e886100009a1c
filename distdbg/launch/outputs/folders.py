"""The log folders: <logs>/attempt_0/<local rank>/{stdout.log,stderr.log,error.json}.

With --log-dir, <logs> is a new folder below it, named after the rendezvous id, as torchrun does it;
without, it is the run folder's own. /dev/null as --log-dir: no files at all.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from distdbg.errors import ConfigError
from distdbg.launch.output_streams import StdStreams
from distdbg.record.folders import LOGS, attempt_folder, attempts, make_inner

LOG_NAMES: Final[Mapping[StdStreams, str]] = {
    StdStreams.OUT: "stdout.log",
    StdStreams.ERR: "stderr.log",
}
FILTERED_NAMES: Final[Mapping[StdStreams, str]] = {
    StdStreams.OUT: "filtered_stdout.log",
    StdStreams.ERR: "filtered_stderr.log",
}
#: Ends the name of a file that says in which folder the logs are.
ELSEWHERE: Final = ".elsewhere"
ERROR_NAME: Final = "error.json"


def make_logs_folder(
    run_folder: Path,
    *,
    log_dir: Path | str | None = None,
    run_id: str = "none",
    host: str = "",
    held: ExitStack | None = None,
) -> Path | None:
    """Make the folder for the logs of one launcher; None: nothing is to be kept.

    `host` is given where launchers share the run folder, so that their local ranks do not meet; of those on
    one host, each has a folder of its own until `held` is closed.
    """
    if log_dir is not None and str(log_dir) == os.devnull:
        return None
    try:
        if log_dir is not None:
            Path(log_dir).mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^A-Za-z0-9._-]", "-", run_id)
            made = Path(tempfile.mkdtemp(prefix=f"{name}_", dir=log_dir)).absolute()
            if host:
                make_inner(run_folder / LOGS)
                host = _launcher_folder(run_folder / LOGS / host, held).name
            note_logs(run_folder, host, made)
            return made
        note_logs(run_folder, "", None)
        folder = run_folder / LOGS
        make_inner(folder)
        if host:
            folder = _launcher_folder(folder / host, held)
            note_logs(run_folder, folder.name, None)
        _clear(folder)  # of a former run in the same folder
    except OSError as error:
        place = log_dir or run_folder / LOGS
        raise ConfigError(
            f"no folder for logs can be made in {place}: {error.strerror}",
            hint="choose another one with --log-dir",
        ) from error
    return folder


def _launcher_folder(wanted: Path, held: ExitStack | None) -> Path:
    """The folder, or one beside it where another launcher has it; the first one clears what nobody has."""
    number = 1
    while (descriptor := _lock(folder := _numbered(wanted, number))) is None:
        number += 1
    if held is None:
        os.close(descriptor)
    else:
        held.callback(os.close, descriptor)
    if number == 1:
        _clear_others(wanted)
    return folder


def _clear_others(wanted: Path) -> None:
    """Of launchers of a former run; the folders stay, as another launcher may be about to lock one."""
    number = 2
    while (folder := _numbered(wanted, number)).is_dir():
        descriptor = _lock(folder)
        if descriptor is not None:
            _clear(folder)
            note_logs(wanted.parent.parent, folder.name, None)
            os.close(descriptor)
        number += 1


def _clear(folder: Path) -> None:
    for old in attempts(folder):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)


def _numbered(wanted: Path, number: int) -> Path:
    return wanted if number == 1 else wanted.with_name(f"{wanted.name}.{number}")


def _lock(folder: Path) -> int | None:
    """Make and lock it; None: another launcher has it."""
    make_inner(folder)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def note_logs(run_folder: Path, host: str, logs: Path | None) -> None:
    """Leave word in the run's folder where its logs are; None: there."""
    path = run_folder / f"{LOGS}{'@' if host else ''}{host}{ELSEWHERE}"
    with suppress(OSError):  # then they are found by who knows where they are
        if logs is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(os.fsencode(logs))


def make_rank_folder(logs: Path, attempt: int, local_rank: int) -> Path:
    """Make the folder of one rank in one attempt; OSError when it cannot be."""
    folder = rank_folder(logs, attempt, local_rank)
    logs.mkdir(mode=0o700, parents=True, exist_ok=True)  # somebody may have removed them
    make_inner(folder.parent)
    make_inner(folder)
    return folder


def rank_folder(logs: Path, attempt: int, local_rank: int) -> Path:
    return attempt_folder(logs, attempt) / str(local_rank)
