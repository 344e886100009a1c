"""A killed server leaves its Unix socket behind: whoever buries the server removes the file."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path


def remove_stale(path: Path, pid: int) -> None:
    """Remove what the process `pid`, which is gone, has left of its socket at `path`.

    A socket that is being served, by another process then, stays. Never raises.
    """
    with suppress(OSError):
        for unfinished in path.parent.glob(f".{pid:x}-*"):  # named so until somebody can connect
            unfinished.unlink()
    with suppress(OSError):
        if not _is_served(path):
            path.unlink()


def _is_served(path: Path) -> bool:
    # Through a descriptor: a socket's address has 107 bytes, paths may be longer.
    inode = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            sock.connect(f"/proc/self/fd/{inode}")
    except ConnectionRefusedError:
        return False
    except BlockingIOError:
        return True  # its queue is full
    finally:
        os.close(inode)
    return True
