"""The protocol between launcher and warden: JSON with its length in front, descriptors beside it.

    offset  0         4
            | nbytes  | JSON, in UTF-8 |        nbytes: uint32, little-endian

    example 0c000000 {"pid": 471}

Both ends are of one process image and one user, on a socket that has no name: nothing here is
checked. Descriptors travel with the first bytes of a message.
"""

from __future__ import annotations

import array
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 16
#: Standard input, output and error.
MAX_DESCRIPTORS = 3


def to_frame(message: dict[str, Any]) -> bytes:
    content = json.dumps(message).encode()
    return _LENGTH.pack(len(content)) + content


class WardenChannel:
    """One end of a socket pair. What was half read stays until the rest comes."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._bytes = bytearray()
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """OSError when the other side is gone, TimeoutError by the socket's own timeout."""
        frame = to_frame(message)
        if descriptors:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
            frame = frame[self.socket.sendmsg([frame], [rights]) :]
        self.socket.sendall(frame)

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """Wait for one message; EOFError when the other side is gone, TimeoutError as in `send`."""
        while (found := self._take()) is None:
            self.fill()
        return found

    def take_all(self) -> list[dict[str, Any]]:
        """The messages that have been read whole."""
        found = []
        while (taken := self._take()) is not None:
            found.append(taken[0])
        return found

    def fill(self) -> None:
        size = MAX_DESCRIPTORS * array.array("i").itemsize
        content, ancillary, _, _ = self.socket.recvmsg(
            _CHUNK, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, rights in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(rights[: len(rights) - len(rights) % numbers.itemsize])
                self._descriptors.extend(numbers)
        if not content:
            raise EOFError
        self._bytes += content

    def close(self) -> None:
        self.socket.close()

    def _take(self) -> tuple[dict[str, Any], list[int]] | None:
        if len(self._bytes) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._bytes)[0]
        if len(self._bytes) < end:
            return None
        message: dict[str, Any] = json.loads(self._bytes[_LENGTH.size : end])
        del self._bytes[:end]
        # The kernel never lets one read run over the descriptors of two messages.
        count = message.get("descriptors", 0)
        descriptors, self._descriptors = self._descriptors[:count], self._descriptors[count:]
        return message, descriptors
