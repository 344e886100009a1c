"""The folders in which something of this user outlives a run: private, and made when they are needed.

$XDG_STATE_HOME/distdbg or ~/.local/state/distdbg, and where home cannot be written, distdbg-<uid> in the
temporary folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from distdbg.record.folders import user_folder


def state_folders(environ: Mapping[str, str]) -> list[Path]:
    """Where to look, and to write, in this order; they need not exist."""
    state = environ.get("XDG_STATE_HOME", "")
    folders = [user_folder()]
    if os.path.isabs(state):
        return [Path(state) / "distdbg", *folders]
    # An empty HOME, as of some services, would be the root of the file system.
    if environ.get("HOME") == "":
        return folders
    return [Path.home() / ".local" / "state" / "distdbg", *folders]


def make_private_folder(folder: Path) -> None:
    """Make it ours alone; OSError where it cannot be, or belongs to somebody else."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    # A name in a shared temporary folder can be taken by anybody: it must be ours, and no link.
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a folder of uid {os.getuid()}")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        folder.chmod(0o700)
