"""Whether a folder that somebody names is safe to write to: what sshd asks of a key file's path.

Who can write to a folder on the way can put another in its place, or a link. So each part of the path, with
links followed, belongs to root or this user, and no stranger can write to it; a folder like /tmp, where only
owners rename and remove (sticky), is good enough on the way. A part that belongs to a group of this user is
taken for a project's: its owner and its members are trusted, not all others.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from distdbg import config

VARIABLE: Final = "DISTDBG_STRICT_MODES"
_ROOT: Final = 0


class PathFolder(NamedTuple):
    """One folder on the way."""

    path: str
    uid: int
    gid: int
    mode: int


def check_folder(folder: Path) -> None:
    """PermissionError with the part that is not safe; what is not there yet is made by this user."""
    if not config.read_setting(VARIABLE):
        return
    why = why_not(_parts(folder), os.getuid(), {os.getegid(), *os.getgroups()})
    if why is not None:
        part, words = why
        raise PermissionError(1, f"{words}; {VARIABLE}=0 accepts it all the same", part)


def check_own(folder: Path) -> None:
    """PermissionError unless it is a folder of this user's, and no link."""
    about = folder.lstat()
    if stat.S_ISLNK(about.st_mode):
        raise PermissionError(1, "is a link, which is not followed", str(folder))
    if not stat.S_ISDIR(about.st_mode):
        raise PermissionError(1, "is not a folder", str(folder))
    if about.st_uid != os.getuid() and config.read_setting(VARIABLE):
        raise PermissionError(1, "belongs to another user", str(folder))


def why_not(parts: Sequence[PathFolder], uid: int, gids: Collection[int]) -> tuple[str, str] | None:
    """The first part that is not safe and why, from the root on; None: all are. Pure.

    The last of `parts` is the folder itself, where sticky is not enough: others could put files there.
    """
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        is_shared = part.gid in gids
        if part.uid not in (_ROOT, uid) and not is_shared:
            return part.path, f"belongs to another user (uid {part.uid})"
        if part.mode & stat.S_ISVTX and not is_last:
            continue
        if part.mode & stat.S_IWOTH:
            return part.path, f"can be written to by all users (mode {stat.S_IMODE(part.mode):o})"
        if part.mode & stat.S_IWGRP and not is_shared and part.gid != _ROOT:
            return part.path, f"can be written to by group {part.gid}, which you are not in"
    return None


def _parts(folder: Path) -> list[PathFolder]:
    """List the folder's parts, as far as they exist."""
    real = Path(os.path.realpath(folder))
    found = []
    for path in (*reversed(real.parents), real):
        try:
            about = path.lstat()
        except FileNotFoundError:
            break
        found.append(PathFolder(str(path), about.st_uid, about.st_gid, about.st_mode))
    else:
        return found
    # It is to be made in the last that is there, where sticky is enough.
    return [*found, PathFolder(str(real), os.getuid(), os.getegid(), stat.S_IFDIR | 0o700)]
