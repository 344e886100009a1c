"""The run folder of a small job that hangs, for tests of exports: one of each thing that a record can have.

    us    rank 0            rank 1            rank 2
    10    all_reduce #1     from 14 on        from 30 on: the last       all until 40
    50    all_reduce #2, and at 52 #3: two at once on all ranks          both until 70
    80    send, tag 7       from 75: recv                                both until 90
    100   all_reduce #4     the same          never called it            did not end

Rank 0 has spans, marks with numbers and a finding; rank 1 was killed, 3 s after it all.
"""

from __future__ import annotations

from pathlib import Path

from distdbg.record.ends import RankEnd, write_end
from distdbg.record.folders import record_name
from distdbg.record.format import Exit
from tests.support.record_builder import RecordBuilder

US = 1_000
BEGAN_NS = 5_000_000_000
WALL_NS = 1_790_000_000 * 10**9
#: Of the last sign of life, after the beginning.
END_NS = 3_000_000_000
_STEP = [("train.py", 80, "step"), ("train.py", 120, "main")]


def make_job(
    folder: Path, *, run: str = "small", shift_ns: int = 0, comm: str = "dp grads"
) -> Path:
    """Write its records; `shift_ns`: so much later, by the wall as well."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(3):
        build = _make_rank(rank, run, shift_ns, comm)
        (folder / record_name(rank)).write_bytes(build.to_bytes())
    write_end(
        folder,
        RankEnd(
            rank=1,
            pid=4001,
            host="n01",
            ended_ns=BEGAN_NS + END_NS,
            wall_ns=WALL_NS + shift_ns + END_NS,
            cause="signal",
            signal=9,
        ),
    )
    return folder


def _make_rank(rank: int, run: str, shift_ns: int, comm: str) -> RecordBuilder:
    build = RecordBuilder(
        rank=rank,
        world_size=3,
        ring_count=64,
        form_count=64,
        site_count=16,
        strings_nbytes=2048,
        text_count=4,
        pid=4000 + rank,
        host="n01",
        boot_id="boot",
        run=run,
        wall_ns=WALL_NS + shift_ns,
        monotonic_ns=BEGAN_NS,
    )
    group = build.add_group("dp", ranks="0-2", size=3, rank=rank, at_ns=BEGAN_NS)
    if rank == 0:
        outer = build.begin_span("step 1", at_ns=BEGAN_NS + 5 * US)
        inner = build.begin_span("forward", at_ns=BEGAN_NS + 6 * US)
        build.end_span(inner, at_ns=BEGAN_NS + 8 * US)
        build.mark("loss", 0.5, at_ns=BEGAN_NS + 9 * US)
    first = _reduce(build, group, (10, 14, 30)[rank], comm)
    build.start(first, after_ns=(30 - (10, 14, 30)[rank]) * US)
    build.end(first, after_ns=(40 - (10, 14, 30)[rank]) * US)
    for at_us in (50, 52):
        both = _reduce(build, group, at_us, is_async=True)
        build.start(both, after_ns=500)
        build.end(both, after_ns=(70 - at_us) * US)
    if rank < 2:
        kind, at_us = ("send", 80) if rank == 0 else ("recv", 75)
        message = build.issue(
            kind, group, at_ns=BEGAN_NS + at_us * US, seq=1, peer=1 - rank, tag=7, stack=_STEP,
            thread=4000 + rank, dtype="int8", inputs=[(64,)], nbytes=64,
        )  # fmt: skip
        build.start(message, after_ns=(80 - at_us) * US + 100)
        build.end(message, after_ns=(90 - at_us) * US, source=-1 if rank == 0 else 0)
        _reduce(build, group, 100)
    if rank == 0:
        build.end_span(outer, at_ns=BEGAN_NS + 95 * US)
        build.begin_span("step 2", at_ns=BEGAN_NS + 96 * US)
        build.mark("loss", 0.25, at_ns=BEGAN_NS + 97 * US)
        build.mark("saved", at_ns=BEGAN_NS + 98 * US)
        build.find('{"type": "Suspicion", "what": "looks odd"}', group, at_ns=BEGAN_NS + 99 * US)
    if rank == 2:
        build.exit(Exit.RAISED, at_ns=BEGAN_NS + 95 * US, text="ValueError: 7 is not a colour")
    count = 4 if rank < 2 else 3
    build.set_group(group, issued_seq=count, ended_seq=3)
    build.set_state(heartbeat_ns=BEGAN_NS + (END_NS if rank < 2 else 95 * US))
    return build


def _reduce(
    build: RecordBuilder, group: int, at_us: int, comm: str = "", *, is_async: bool = False
) -> int:
    return build.issue(
        "all_reduce", group, at_ns=BEGAN_NS + at_us * US, stack=_STEP,
        thread=4000, comm=comm, is_async=is_async, dtype="float32", op="sum",
        inputs=[(256,)], nbytes=1024,
    )  # fmt: skip
