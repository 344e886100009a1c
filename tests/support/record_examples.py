"""Small records for tests of readers: one that has not wrapped, and one that has."""

from __future__ import annotations

from distdbg.record.format import Exit, Status
from tests.support.record_builder import RecordBuilder

STEP = [("train.py", 80, "step"), ("train.py", 120, "main")]
SAVE = [("train.py", 91, "save"), ("train.py", 120, "main")]


def build_short() -> RecordBuilder:
    """Each kind of entry once; the ring has room left."""
    build = RecordBuilder(rank=12, world_size=16, wall_ns=1_764_000_000 * 10**9, text_count=4)
    group = build.add_group("dp", ranks="0-15", size=16, rank=12, at_ns=500, stack=SAVE)
    span = build.begin_span("forward", at_ns=900)
    first = build.issue(
        "all_reduce",
        group,
        at_ns=1_000,
        stack=STEP,
        comm="layer 3",
        dtype="float32",
        device="cpu",
        op="sum",
        inputs=[(1024,)],
        nbytes=4096,
        fingerprint=0xFEED,
    )
    build.start(first, after_ns=100)
    build.end(first, after_ns=250)
    build.end_span(span, at_ns=1_300)
    build.mark("step", 12.0, at_ns=1_400)
    received = build.issue("recv", group, at_ns=1_500, seq=1, tag=7, is_async=True, dtype="int8")
    build.end(
        received, after_ns=80, status=Status.PEER_LOST, source=3, error='{"what": "PeerLost"}'
    )
    build.find('{"what": "order"}', group, at_ns=1_600)
    build.issue("barrier", group, at_ns=1_700, stack=SAVE)
    build.count(0, group, "all_reduce", ended=1, nbytes=4096, duration_ns=250, longest_ns=250)
    build.set_group(group, issued_seq=2, ended_seq=1, current=7)
    build.exit(Exit.RAISED, at_ns=2_000, text="ValueError: 7 is not a colour")
    return build


def build_wrapped() -> RecordBuilder:
    """A ring that came round, with two ops parked; numbers pass powers of two."""
    build = RecordBuilder(ring_count=8, form_count=12, strings_nbytes=256, text_count=2)
    group = build.add_group("dp", ranks="0-1", size=2)
    hanging = {2, 8}
    for index in range(1, 18):
        kind = "all_reduce" if index % 2 else "broadcast"
        number = build.issue(kind, group, at_ns=index * 1_000, stack=STEP, dtype="int8")
        if number not in hanging:
            build.end(number, after_ns=200)
    return build
