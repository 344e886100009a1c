"""Unix sockets at paths of any length, private from the first moment on, and never two at one place.

The kernel takes 107 bytes for a path; a temporary folder and the names of run and host are often
longer. So a socket is bound in its folder through /proc/self/fd, and reached through the descriptor of
its own inode.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from distdbg.errors import ConfigError

_PEER = struct.Struct("3i")


def debugger_socket(rank: int | str) -> str:
    """The socket of the debugger of a rank, in the folder of its start."""
    return f"debug-rank{rank}.sock"


def listen(path: Path) -> socket.socket:
    """Listen at `path`, in place of a socket that nobody serves any more.

    ConfigError when somebody serves it, or it cannot be made.
    """
    if is_served(path):
        raise ConfigError(f"{path} is served by another process")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Under a name of its own first: nobody can connect to what is not private yet.
    name = f".{os.getpid():x}-{secrets.token_hex(3)}"
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.bind(f"/proc/self/fd/{folder}/{name}")
            os.chmod(name, 0o600, dir_fd=folder)
            sock.listen(16)
            os.rename(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        finally:
            os.close(folder)
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen at {path}: {error.strerror}") from error
    sock.setblocking(False)
    return sock


def connect(path: Path, timeout_s: float) -> socket.socket:
    """Connect; FileNotFoundError or ConnectionRefusedError when nobody is there."""
    inode = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(f"/proc/self/fd/{inode}")
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(inode)
    return sock


def is_served(path: Path) -> bool:
    """Whether somebody listens at a Unix socket; what is left of one that is gone is removed."""
    try:
        connect(path, 1.0).close()
    except FileNotFoundError:
        return False
    except ConnectionRefusedError:
        with suppress(OSError):
            path.unlink()
        return False
    except OSError:
        return True  # its queue is full: somebody is there
    return True


def is_same_user(sock: socket.socket) -> bool:
    """Whether the other end of a Unix socket belongs to this user."""
    credentials: Any = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(credentials)
    return bool(uid == os.getuid())
