"""The file in which rank 0 publishes the address of its store to the other ranks of its host.

Rank 0 opens its store on a port the system picks, then publishes the address in a file of a folder
that only this user can enter. The others wait for the file. A former run may have left one with the
same name (killed ranks remove nothing), so it says which process wrote it, and a reader does not
believe a process that is gone. Publishing replaces the file as a whole; nobody reads a half one.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass

from distdbg.errors import ConfigError
from distdbg.record.folders import temporary_folder
from distdbg.runtime.rendezvous.process import ProcessIdentity, is_gone

_SIZE_LIMIT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStore:
    """What rank 0 wrote: where its store listens, and who it is."""

    host: str
    port: int
    nonce: str
    """Also kept in the store, so that a reader knows that it reached this one."""
    writer: ProcessIdentity


def published_path(key: str) -> str:
    """Return the file for a key in the user's private folder, which is made if need be."""
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    return os.path.join(private_folder(), f"{name}.json")


def new_nonce() -> str:
    """Return a word that no other publication has."""
    return secrets.token_hex(8)


def publish(path: str, published: PublishedStore) -> None:
    """Write the file; atomically, readable by this user only, replacing what a former run left."""
    partial = f"{path}.{published.nonce}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(published), file)
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def withdraw(path: str, published: PublishedStore) -> None:
    """Remove the file unless another process has replaced it meanwhile."""
    if read(path) == published:
        with suppress(FileNotFoundError):
            os.unlink(path)


def read(path: str) -> PublishedStore | None:
    """Return what the file says; None without a file, with one of another user, or with a damaged one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_uid != os.getuid():
            return None  # another user has published it
        content = file.read(_SIZE_LIMIT)
    try:
        fields = json.loads(content)
        return PublishedStore(
            host=str(fields["host"]),
            port=int(fields["port"]),
            nonce=str(fields["nonce"]),
            writer=ProcessIdentity(**fields["writer"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def read_if_alive(path: str, me: ProcessIdentity) -> PublishedStore | None:
    """Return what the file says unless the process that wrote it is certainly gone."""
    published = read(path)
    return None if published is None or is_gone(published.writer, me) else published


def private_folder() -> str:
    """Return the folder that only this user can enter; ConfigError where there can be none."""
    folder = os.path.join(temporary_folder(), f"distdbg-{os.getuid()}")
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be made: {error.strerror}",
            hint="set TMPDIR to a folder that you can write to",
        ) from error
    status = os.lstat(folder)
    # In a folder that all users may write to, somebody may have been faster with this name.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ConfigError(
            f"{folder} must be a folder that only you can enter, and is not",
            hint=f"chmod 700 {folder} if it is yours; else remove it, or set TMPDIR",
        )
    return folder
