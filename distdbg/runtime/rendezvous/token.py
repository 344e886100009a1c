"""The run's token: the secret that every peer of a run knows and nobody else.

What is kept is a key. Each kind of connection, and each run's agents, have a token of their own,
derived from it: a proof for one is worth nothing for another.

Looked for in DISTDBG_TOKEN (text), then in the file named by DISTDBG_TOKEN_FILE, then in the
user's own file, which is made when it is not there: $XDG_STATE_HOME/distdbg/token or
~/.local/state/distdbg/token, or where home cannot be written, distdbg-<uid>/token in the temporary
folder. So ranks of one user on one host, or with one home, meet without any set-up; ranks
elsewhere need one of the variables.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from distdbg.errors import ConfigError
from distdbg.runtime.rendezvous.state_folder import make_private_folder, state_folders

_LONGEST_NBYTES = 4096


def run_token(environ: Mapping[str, str] = os.environ) -> bytes:
    """The token of this run, never empty. ConfigError when its file cannot be trusted."""
    if text := environ.get("DISTDBG_TOKEN"):
        return text.encode("utf-8", "surrogateescape")
    if name := environ.get("DISTDBG_TOKEN_FILE"):
        return read_token(Path(name))
    for folder in state_folders(environ):
        path = folder / "token"
        try:
            make_private_folder(folder)
            if not path.exists():
                _create_token(path)
        except OSError:
            continue  # this folder cannot be written: the next one
        return read_token(path)
    raise ConfigError(
        "there is no private folder to keep the run's token in",
        details=[f"tried {folder}" for folder in state_folders(environ)],
        hint="set DISTDBG_TOKEN to the same secret text on all ranks",
    )


def read_token(path: Path, *, variable: str = "DISTDBG_TOKEN_FILE") -> bytes:
    """Read a token file; refuse one that others could have read or written.

    `variable` is what names the file, for the error.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would not open
    except OSError as error:
        raise ConfigError(f"token file {path} cannot be read: {error.strerror}") from error
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise ConfigError(
                f"token file {path} is not a file", hint=f"name a file of your own with {variable}"
            )
        if facts.st_uid != os.getuid():
            raise ConfigError(
                f"token file {path} belongs to uid {facts.st_uid}, not to uid {os.getuid()}",
                hint=f"remove it, or name another with {variable}",
            )
        if stat.S_IMODE(facts.st_mode) & 0o077:
            raise ConfigError(
                f"token file {path} can be read by others (mode {stat.S_IMODE(facts.st_mode):o})",
                hint=f"chmod 600 {path}",
            )
        token = os.read(fd, _LONGEST_NBYTES).strip()
    finally:
        os.close(fd)
    if not token:
        raise ConfigError(
            f"token file {path} is empty", hint=f"remove it, or name another with {variable}"
        )
    return token


def _create_token(path: Path) -> None:
    """Make the file whole or not at all; of two that try at once, the first wins."""
    draft = path.with_name(f"token.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(fd, secrets.token_hex(32).encode() + b"\n")
        finally:
            os.close(fd)
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink()
