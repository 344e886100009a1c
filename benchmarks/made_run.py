"""Makes the run folder of a job that never ran: any number of ranks and ops, with one fault planted.

    make_run(folder, ranks=4096, ops=1000, fault="missing", at=17)

Each rank calls collectives on 'world' and on its half of it, from a few lines, some milliseconds apart. The
files have the layout and the size of real ones; what nothing was written into is a hole.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distdbg.record.ends import RankEnd, write_end
from distdbg.record.entries import KIND_LABELS
from distdbg.record.folders import record_name
from distdbg.record.format import HEADER_NBYTES, OP_NBYTES, STATE_NBYTES, Exit, Section, pack
from distdbg.record.forms import write_form
from distdbg.record.observations import Observation, write_sighting
from distdbg.record.rank_state import RankState
from tests.support.record_builder import RecordBuilder

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What can be planted, and what the diagnosis has to say of it.
FAULTS = ("none", "mismatch", "missing", "dead", "stuck", "deadlock", "straggler", "damaged")

_STEP_NS = 5_000_000
_BEGAN_NS = 1_000_000_000_000
#: How long the others are seen to wait where something hangs.
_HUNG_NS = 3 * 10**9
_WALL_NS = 1_790_000_000 * 10**9
_RING = 4096
_U64 = np.uint64


def make_run(
    folder: Path,
    *,
    ranks: int,
    ops: int,
    fault: str = "none",
    at: int = 1,
    seed: int = 1,
    room: int = _RING,
) -> None:
    """Write the records; `at` is the rank to blame, `room` for how many events a record has."""
    assert fault in FAULTS
    assert ops <= room, "the rings of these records do not come round"
    chance = np.random.default_rng(seed)
    for rank in range(ranks):
        build = RecordBuilder(
            rank=rank,
            world_size=ranks,
            ring_count=room,
            form_count=5120,
            site_count=16384,
            text_count=64,
            parked_count=256,
            group_count=128,
            counter_count=256,
            strings_nbytes=262144,
            pid=10_000 + rank,
            host=f"n{rank // 8:03}",
            boot_id=f"boot-{rank // 8:03}",
            run="made",
            wall_ns=_WALL_NS,
            monotonic_ns=_BEGAN_NS,
        )
        ring, hangs = _make_ring(build, rank, ranks, ops, fault, at, chance)
        last = int(ring[-1, 0])
        build.set_state(
            last_number=last,
            heartbeat_ns=int(ring[-1, 1]) + (0 if rank == at else _HUNG_NS * hangs),
            level=2,
            clock_offset_ns=0,
            clock_error_ns=1_000,
        )
        if not hangs:
            build.exit(Exit.RETURNED, at_ns=int(ring[-1, 1]) + _STEP_NS)
        _write(folder / record_name(rank), build, ring)
    began = _BEGAN_NS + (ops + 1) * _STEP_NS
    if fault == "dead":
        facts: dict[str, Any] = {"cause": "signal", "signal": 9, "ended_ns": began}
        about: dict[str, Any] = {
            "rank": at,
            "pid": 10_000 + at,
            "host": f"n{at // 8:03}",
            "wall_ns": _WALL_NS,
        }
        write_end(folder, RankEnd(**facts, **about))
    if fault == "stuck":
        state = RankState.STOPPED
        host = f"n{at // 8:03}"
        seen = Observation(rank=at, pid=10_000 + at, host=host, state=state, since_ns=began)
        write_sighting(folder, seen)


def _make_ring(
    build: RecordBuilder,
    rank: int,
    ranks: int,
    ops: int,
    fault: str,
    at: int,
    chance: np.random.Generator,
) -> tuple[NDArray[np.uint64], bool]:
    """The entries of the ring from number 1 on, and whether the last op never ends."""
    half = ranks // 2
    mine = range(half) if rank < half else range(half, ranks)
    world = build.add_group("world", ranks=f"0-{ranks - 1}", size=ranks, rank=rank)
    dp = build.add_group(
        f"half {int(rank >= half)}",
        ranks=f"{mine[0]}-{mine[-1]}",
        size=len(mine),
        rank=rank - mine[0],
    )
    kinds = ("all_reduce", "all_gather", "broadcast", "reduce_scatter")
    forms = [
        build.add_form(
            write_form(name=kind, kind=kind, dtype="float32", op="sum", inputs=[(n,)], nbytes=4 * n)
        )
        for kind, n in ((kinds[i % 4], 1 << (8 + i)) for i in range(8))
    ]
    stacks = [
        build.add_stack([("/job/train.py", 80 + i, "step"), ("/job/train.py", 120, "main")])
        for i in range(8)
    ]
    index = np.arange(ops)
    on_dp = index % 4 == 3
    words = np.zeros((ops, OP_NBYTES // 8), _U64)
    shape = index % 8
    late_ns = chance.integers(0, 200_000, ops)
    if fault == "straggler" and rank == at:
        late_ns += _STEP_NS // 2
    arrival = 200_000 + (_STEP_NS // 2 if fault == "straggler" else 0)
    started = arrival - late_ns
    started[started < 0] = 0
    words[:, 0] = index + 1
    words[:, 1] = _BEGAN_NS + index * _STEP_NS + late_ns
    words[:, 2] = np.where(on_dp, np.cumsum(on_dp), np.cumsum(~on_dp))
    words[:, 4] = np.where(on_dp, dp, world)
    words[:, 5] = np.array(forms, _U64)[shape]
    words[:, 6] = np.array(stacks, _U64)[shape] | _U64((10_000 + rank) << 32)
    kind = np.array([KIND_LABELS.index(kinds[i % 4]) for i in range(8)], _U64)[shape]
    #: peer -1, type OP, no flags, level 2
    words[:, 7] = _U64(0xFFFFFFFF | 1 << 32 | 2 << 56) | kind << _U64(48)
    words[:, 8] = words[:, 5] * _U64(0x9E3779B97F4A7C15)
    words[:, 12] = _pack(started)
    words[:, 13] = _pack(started + 100_000)
    words[:, 14] = _U64(pack(0))
    hangs = fault in ("mismatch", "missing", "dead", "stuck", "deadlock")
    if hangs:
        words[-1, 12:15] = 0
        if fault == "mismatch" and rank == at:
            words[-1, 5] = forms[(shape[-1] + 4) % 8]
            words[-1, 8] = 1
        if fault in ("missing", "dead", "stuck") and rank == at:
            words = words[:-1]
        if fault == "deadlock" and rank in (at, (at + 1) % ranks):
            peer = (at + 1) % ranks if rank == at else at
            words[-1, 2:5] = 1, 0, world
            words[-1, 5] = build.add_form(write_form(name="recv", kind="recv", dtype="int8"))
            words[-1, 7] = _U64(peer | 1 << 32 | 2 << 40 | KIND_LABELS.index("recv") << 48)
    _check(words)
    if fault == "damaged" and rank == at:
        words[len(words) // 2, 2] ^= _U64(1 << 40)
    done = words[:, 13] != 0
    for number, is_mine in ((world, ~on_dp), (dp, on_dp)):
        counts = is_mine[: len(words)] & (words[:, 7] >> _U64(40) & _U64(2) == 0)
        build.set_group(number, issued_seq=int(counts.sum()), ended_seq=int((counts & done).sum()))
    return words, hangs


def _pack(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    value = values.astype(_U64)
    return value << _U64(16) | (value + _U64(0x5A5A)) % _U64(0xFFFF)


def _check(words: NDArray[np.uint64]) -> None:
    """The sum of the first words of each row modulo 2**64 - 1: a carry comes back in."""
    total = np.zeros(len(words), _U64)
    for column in range(11):
        total = total + words[:, column]
        total += total < words[:, column]
    total[total == _U64(2**64 - 1)] = 0
    words[:, 11] = total


def _write(path: Path, build: RecordBuilder, ring: NDArray[np.uint64]) -> None:
    data = memoryview(build.to_bytes())
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(fd, len(data))
        os.pwrite(fd, data[: HEADER_NBYTES + STATE_NBYTES], 0)
        for section in (Section.GROUPS, Section.FORMS, Section.SITES, Section.STRINGS):
            start = build.offsets[section]
            os.pwrite(fd, data[start : start + 8192], start)
        os.pwrite(fd, ring.tobytes(), build.offset_of(Section.RING, 1))
    finally:
        os.close(fd)
