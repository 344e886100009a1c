"""A rank whose frames make no sense: all ranks are told who it is and what is wrong. No process dies."""

from __future__ import annotations

import ctypes
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import CollectiveError

pytestmark = pytest.mark.ranks

#: Of native/core/segment.hpp, where the beginning of its Header is, and native/core/channel.hpp.
MAGIC = 0x3167656274736964
HEADER = struct.Struct("<QQIIIIQ")
CHANNEL_NBYTES = 128
#: Of native/core/p2p.hpp: payload, type, status, id, nbytes, address, tag, dtype, level.
FRAME = struct.Struct("<QIIQQQqiIQ")
NO_KIND = FRAME.pack(0, 77, 0, 0, 0, 0, 0, -1, 0, 0)
WRONG_DTYPE = FRAME.pack(0, 0, 0, 0, 8, 0, 0, 1000, 0, 0)


def forge(source: int, target: int, frame: bytes) -> None:
    """Write a frame into the ring between two ranks, behind what is in it."""
    maps = Path("/proc/self/maps").read_text()
    [base] = {
        int(line.partition("-")[0], 16)
        for line in maps.splitlines()
        if re.search(r" 00000000 .*/memfd:distdbg ", line)
        and ctypes.c_uint64.from_address(int(line.partition("-")[0], 16)).value == MAGIC
    }
    _, _, size, _, capacity, _, total = HEADER.unpack(ctypes.string_at(base, HEADER.size))
    stride = CHANNEL_NBYTES + capacity
    channel = base + total - size * size * stride + (source * size + target) * stride
    written = ctypes.c_uint64.from_address(channel)
    at = written.value % capacity
    assert at + len(frame) <= capacity
    ctypes.memmove(channel + CHANNEL_NBYTES + at, frame, len(frame))
    written.value += len(frame)


def receive(source: int, others_have_heard: Path | None) -> None:
    if others_have_heard is None:
        dist.recv(np.zeros(4), source)
        return
    work: Any = dist.irecv(np.zeros(4), source)
    while not others_have_heard.exists():
        time.sleep(0.005)  # this thread looks at nothing: that in the background does
    work.wait()


def one_lies(frame: str, is_async: bool, heard: str) -> str:
    dist.init_process_group()
    dist.barrier()
    rank = dist.get_rank()
    if rank == 1:
        forge(1, 0, bytes.fromhex(frame))
    with pytest.raises(CollectiveError) as reported:
        receive(1 - rank, Path(heard) if is_async and rank == 0 else None)
    Path(heard).touch()
    with pytest.raises(CollectiveError):
        dist.barrier()
    return reported.value.what


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("frame", "what"),
    [(NO_KIND, "it is of no known kind"), (WRONG_DTYPE, "an offer of no known dtype")],
)
def test_a_malformed_frame_is_told_on_all_ranks(
    ranks: Callable[..., list[Any]], tmp_path: Path, frame: bytes, what: str, is_async: bool
) -> None:
    heard = str(tmp_path / "heard")
    for reported in ranks(
        one_lies, 2, timeout=30.0, frame=frame.hex(), is_async=is_async, heard=heard
    ):
        assert reported == (
            "recv on group 'world' cannot run: rank 1 sent a malformed frame "
            f"({what}) in a send or recv"
        )
