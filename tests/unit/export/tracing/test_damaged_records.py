"""A record that is damaged or hostile makes fewer spans, never an error, and never much work."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from distdbg.export.otel.model import SpanData
from distdbg.export.otel.recorded_ops import TracedRank
from distdbg.export.otel.sampling import ALL, Sampler
from distdbg.export.otel.sdk import resource_of_rank, to_sdk
from distdbg.export.tracing.records import HostRecords
from distdbg.record.format import OP, OP_NBYTES, Section, checksum
from tests.support.record_builder import RecordBuilder

S = 10**9


def build() -> RecordBuilder:
    made = RecordBuilder(
        rank=0, world_size=2, run="r", host="n1", ring_count=64, strings_nbytes=2048, form_count=32
    )
    group = made.add_group("dp", ranks="0-1", size=2)
    for at in range(12):
        begin = made.begin_span("step", at_ns=at)
        made.context(at, at + 1)
        made.end(made.issue("all_reduce", group, at_ns=at, stack=[("a.py", 3, "f")]), after_ns=S)
        made.end(made.issue("recv", group, at_ns=at, peer=-1, seq=at + 1), after_ns=5, source=1)
        made.end_span(begin, at_ns=at)
    made.issue("barrier", group)
    return made


def follow(path: Path, sampler: Sampler) -> list[SpanData]:
    records = HostRecords(
        folder=path.parent,
        host="n1",
        run="r",
        start=0,
        sampler=sampler,
        slow_ns=S,
        spans_per_s=1000.0,
        now_ns=0,
    )
    records.look(S)
    records.look(2 * S)
    records.finish(3 * S, 3 * S)
    records.close()
    return [span for _, span in records.take_made().spans]


@pytest.mark.parametrize("bound", [None, ALL // 2])
def test_flipped_bytes_are_no_error(bound: int | None, tmp_path: Path) -> None:
    data = build().to_bytes()
    rng = random.Random(11)
    path = tmp_path / "rank00000.ddr"
    resource = resource_of_rank(TracedRank(run="r", rank=0))
    counts = set()
    for _ in range(60):
        torn = bytearray(data)
        for _ in range(rng.randrange(1, 200)):
            torn[rng.randrange(4096, len(torn))] = rng.randrange(256)
        path.write_bytes(torn)
        spans = follow(path, Sampler(bound))
        encode_spans([to_sdk(span, resource) for span in spans])
        counts.add(len(spans))
    assert len(counts) > 5


def test_numbers_of_a_hostile_writer_are_no_error_and_no_work(tmp_path: Path) -> None:
    made = build()
    data = bytearray(made.to_bytes())
    rng = random.Random(5)
    most = 2**64 - 1
    for index in range(1, 40):
        start = made.offset_of(Section.RING, index)
        for name in ("seq", "value", "group", "issued_ns"):
            if rng.random() < 0.7:
                struct.pack_into(
                    "<Q", data, start + OP[name].offset, rng.choice((most, most >> 1, 0))
                )
        check = checksum(data[start : start + OP["check"].offset])
        struct.pack_into("<Q", data, start + OP["check"].offset, check)
        assert start + OP_NBYTES <= len(data)
    path = tmp_path / "rank00000.ddr"
    path.write_bytes(data)
    resource = resource_of_rank(TracedRank(run="r", rank=0))
    for bound in (None, 0, ALL, ALL // 2):
        began = time.thread_time()
        spans = follow(path, Sampler(bound))
        assert time.thread_time() - began < 2.0
        encode_spans([to_sdk(span, resource) for span in spans])
