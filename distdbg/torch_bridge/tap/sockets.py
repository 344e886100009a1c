"""What ends an op that waits in gloo: gloo has no abort, but it gives up when its connections close.

Its sockets are those that appear in this process while it makes a group.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress


def open_sockets() -> dict[int, int]:
    """The sockets of this process: the inode of each by its descriptor."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError, ValueError):
            facts = os.stat(int(name))
            if stat.S_ISSOCK(facts.st_mode):
                found[int(name)] = facts.st_ino
    return found


def new_since(before: dict[int, int]) -> dict[int, int]:
    """Those that were not there."""
    return {fd: inode for fd, inode in open_sockets().items() if before.get(fd) != inode}


def shut_down(sockets: dict[int, int]) -> int:
    """Close the connections among them in both directions; how many there were."""
    count = 0
    for fd, inode in sockets.items():
        with suppress(OSError):
            if os.stat(fd).st_ino != inode:
                continue  # it was closed, and the number is another's now
            with socket.socket(fileno=os.dup(fd)) as twin:
                if twin.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                twin.getpeername()  # not one that only listens
                twin.shutdown(socket.SHUT_RDWR)
                count += 1
    return count
