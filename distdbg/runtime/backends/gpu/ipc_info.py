"""What each rank says of its memory at the beginning of an op: an info of as many bytes on every rank."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from distdbg.runtime.backends.gpu.exports import MOST_RETIRED

_HANDLE_NBYTES: Final = 64
_WHY_NBYTES: Final = 96
#: Whether it can, how many refs, new exports and retired ones; the factor.
_HEAD: Final = struct.Struct("<?xHHHd")
_REF: Final = struct.Struct("<qQQ")
_NEW: Final = struct.Struct(f"<q{_HANDLE_NBYTES}s")


class MemoryRef(NamedTuple):
    """A piece of a rank's memory that others read or write; number -1: there is none."""

    export: int
    offset: int
    nbytes: int


NO_MEMORY: Final = MemoryRef(-1, 0, 0)


@dataclass(slots=True)
class IpcInfo:
    """Of one rank."""

    event: bytes = b""
    #: Why its arrays cannot be opened; "": they can.
    why_not: str = ""
    #: For each rank what that one reads here, or one for all; then, last, what all write.
    sources: list[MemoryRef] = field(default_factory=list)
    target: MemoryRef = NO_MEMORY
    #: How many bytes it expects to read from each rank; none: that is not asked.
    recv_nbytes: list[int] = field(default_factory=list)
    factor: float = 1.0
    new: list[tuple[int, bytes]] = field(default_factory=list)
    retired: list[int] = field(default_factory=list)

    def source_for(self, reader: int) -> MemoryRef:
        """What this rank sources to another."""
        if not self.sources:
            return NO_MEMORY
        return self.sources[0] if len(self.sources) == 1 else self.sources[reader]


def info_nbytes(size: int) -> int:
    """The same on all ranks of a group."""
    most_new = size + 1
    return (
        _HEAD.size + _HANDLE_NBYTES + _WHY_NBYTES + _REF.size * (size + 1)
        + 8 * size + 8 * MOST_RETIRED + _NEW.size * most_new
    )  # fmt: skip


def pack(info: IpcInfo, size: int) -> bytes:
    """For the others."""
    recv_nbytes = [*info.recv_nbytes, *[-1] * (size - len(info.recv_nbytes))]
    retired = [*info.retired, *[-1] * (MOST_RETIRED - len(info.retired))]
    sources = [*info.sources, *[NO_MEMORY] * (size - len(info.sources))]
    parts = [
        _HEAD.pack(
            not info.why_not, len(info.sources), len(info.new), len(info.retired), info.factor
        ),
        info.event.ljust(_HANDLE_NBYTES, b"\0"),
        info.why_not.encode()[:_WHY_NBYTES].ljust(_WHY_NBYTES, b"\0"),
        *[_REF.pack(*ref) for ref in sources],
        _REF.pack(*info.target),
        struct.pack(f"<{size}q", *recv_nbytes),
        struct.pack(f"<{MOST_RETIRED}q", *retired),
        *[_NEW.pack(number, handle) for number, handle in info.new],
    ]
    return b"".join(parts).ljust(info_nbytes(size), b"\0")


def unpack(data: bytes, size: int) -> IpcInfo:
    """Of another rank."""
    can, given, new, retired, factor = _HEAD.unpack_from(data)
    at = _HEAD.size
    event = data[at : at + _HANDLE_NBYTES]
    at += _HANDLE_NBYTES
    why = data[at : at + _WHY_NBYTES].rstrip(b"\0").decode(errors="replace")
    at += _WHY_NBYTES
    refs = [MemoryRef(*_REF.unpack_from(data, at + index * _REF.size)) for index in range(size + 1)]
    at += (size + 1) * _REF.size
    recv_nbytes = list(struct.unpack_from(f"<{size}q", data, at))
    at += 8 * size
    gone = list(struct.unpack_from(f"<{MOST_RETIRED}q", data, at))[:retired]
    at += 8 * MOST_RETIRED
    opened = [_NEW.unpack_from(data, at + index * _NEW.size) for index in range(new)]
    return IpcInfo(
        event, "" if can else why or "unknown", refs[:given], refs[size],
        [] if recv_nbytes[0] < 0 else recv_nbytes, factor, opened, gone,
    )  # fmt: skip


def sizes_match(infos: Sequence[IpcInfo]) -> bool:
    """Whether each rank sources to each other what that one expects."""
    return all(
        not taker.recv_nbytes or taker.recv_nbytes[giver] == infos[giver].source_for(reader).nbytes
        for reader, taker in enumerate(infos)
        for giver in range(len(infos))
    )
