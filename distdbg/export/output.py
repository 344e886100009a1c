"""Files and folders that are there whole or not at all: written without a name, or another one, and renamed.

A full disk, Ctrl-C, SIGTERM or an error of whoever writes leaves what was there before, and nothing else. Of
SIGKILL that is so for a file where the file system has files without names, as those of Linux have; else, and
for a folder, a draft is left, which is named '.' and what it would have been.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from distdbg.errors import UsageError

#: What messages put before a name.
_FLAG: Final = "--output "
_PRIVATE: Final = 0o600
#: What anybody may read, as far as the umask has it.
SHARED: Final = 0o666
_OWN_DESCRIPTOR: Final = re.compile(r"/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/(\d+)")


def write_file(
    path: Path,
    write: Callable[[BinaryIO], None],
    *,
    force: bool = False,
    flag: str = _FLAG,
    mode: int = _PRIVATE,
) -> int:
    """Write one file; returns its size. UsageError when it already exists or cannot be written.

    `flag` stands before its name in messages: '' where the user did not choose the name.
    `mode` is that of the file, less what the umask takes. A link stays one: where it leads to is written.
    """
    own = _own_descriptor(path)
    if own is not None:
        with _named(path, flag), os.fdopen(os.dup(own), "wb") as output:
            write(output)
            return 0
    with _named(path, flag):
        _refuse(path, flag, force=force)
        is_stream = path.exists() and not path.is_file()  # a pipe, a device
    if is_stream:
        with _named(path, flag), path.open("wb") as output:
            write(output)
            return 0
    place = Path(os.path.realpath(path))
    draft = ""
    try:
        with _named(path, flag), _ended_by_sigterm():
            fd, draft = _open_draft(place, mode)
            with os.fdopen(fd, "wb") as output:
                write(output)
                nbytes = output.tell()
                output.flush()
                draft = draft or _give_name(fd, place)
            if not force and place.exists():  # somebody else was faster
                _refuse(path, flag, force=force)
            os.replace(draft, place)
    except BaseException:
        if draft:
            with suppress(OSError):
                os.unlink(draft)
        raise
    return nbytes


def _own_descriptor(path: Path) -> int | None:
    """Of a name of what is open here: a file behind it is written to where it stands, and never replaced."""
    found = _OWN_DESCRIPTOR.fullmatch(os.path.abspath(path))
    if found is None:
        return None
    return {"stdout": 1, "stderr": 2}.get(found[1]) or int(found[2])


def _open_draft(path: Path, mode: int) -> tuple[int, str]:
    """A file beside `path`, and its name; '' of one that has none, and is gone when nobody has it open."""
    # Its way to a name leads through /proc.
    with suppress(OSError):  # not a file system that can do that; or it says again why not
        if os.path.isdir("/proc/self/fd"):
            return os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode), ""
    draft = _draft_name(path)
    return os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode), draft


def _give_name(fd: int, path: Path) -> str:
    draft = _draft_name(path)
    # With a folder it takes the system call that follows what it is given.
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        os.link(f"/proc/self/fd/{fd}", draft, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)
    return draft


def _draft_name(path: Path) -> str:
    return str(path.parent / f".{path.name[:100]}.{secrets.token_hex(4)}")


def write_folder(
    path: Path, write: Callable[[Path], None], *, force: bool = False, flag: str = _FLAG
) -> int:
    """Write a folder of files; returns their size together.

    With `force` its files replace those of the same name in a folder that is there; all others stay.
    """
    with _named(path, flag):
        if path.exists() and not path.is_dir():
            raise UsageError(f"{flag}{path} is not a folder", hint="give the name of a new one")
        if path.is_dir() and any(path.iterdir()) and not force:
            raise UsageError(
                f"{flag}{path} already exists",
                hint=_how_else("--force replaces files of the same name", flag),
            )
        _refuse_parent(path, flag)
    draft = ""
    try:
        with _named(path, flag), _ended_by_sigterm():
            draft = tempfile.mkdtemp(prefix=f".{path.name[:100]}.", dir=path.absolute().parent)
            write(Path(draft))
            files = [file for file in sorted(Path(draft).rglob("*")) if file.is_file()]
            nbytes = sum(file.stat().st_size for file in files)
            if path.is_dir():
                for file in files:
                    place = path / file.relative_to(draft)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(file, place)
            else:
                os.rename(draft, path)
                draft = ""
    finally:
        if draft:
            shutil.rmtree(draft, ignore_errors=True)
    return nbytes


def _refuse(path: Path, flag: str, *, force: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{flag}{path} is a folder", hint="give the name of a file")
    if path.is_file() and not force:
        raise UsageError(
            f"{flag}{path} already exists", hint=_how_else("--force replaces it", flag)
        )
    _refuse_parent(path, flag)


def _refuse_parent(path: Path, flag: str) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise UsageError(f"{flag}{path}: there is no folder {parent}")


def _how_else(hint: str, flag: str) -> str:
    return hint if flag else f"{hint}; --output PATH writes elsewhere"


@contextmanager
def _named(path: Path, flag: str) -> Iterator[None]:
    """What the system says of a file that is written, as an error that says which file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"{flag}{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM raises here, so that what was begun is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
