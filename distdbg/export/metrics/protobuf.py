"""Metrics as protobuf, which is how Prometheus takes native histograms. Pure.

A stream of io.prometheus.client.MetricFamily, each with its length before it. A histogram has both forms: the
classic buckets with exemplars, and the native ones, which a Prometheus that knows them keeps instead.

    MetricFamily  1 name  2 help  3 type  4 metric...  5 unit
    Metric        1 label...  2 gauge  3 counter  7 histogram
    LabelPair     1 name  2 value
    Gauge         1 value            Counter  1 value
    Histogram     1 sample_count  2 sample_sum  3 bucket...  5 schema  6 zero_threshold  7 zero_count
                  12 positive_span...  13 positive_delta...
    Bucket        1 cumulative_count  2 upper_bound  3 exemplar
    BucketSpan    1 offset  2 length
    Exemplar      1 label...  2 value  3 timestamp (1 seconds  2 nanos)
"""

from __future__ import annotations

import math
from typing import Final

from distdbg.export.metrics.bounds import clean
from distdbg.export.metrics.buckets import (
    LE_SECONDS,
    SCHEMA,
    ZERO_THRESHOLD_S,
    cumulative,
    native,
)
from distdbg.export.metrics.families import MetricType
from distdbg.export.metrics.model import Exemplar, Histogram, Metrics, by_family
from distdbg.export.metrics.text import newest_by_le
from distdbg.export.wire import chunk, delimited, double, packed_sints, sint, text, uint

PROTOBUF_TYPE: Final = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)

#: MetricType of the definitions, and the field of a Metric that has the value.
_TYPES: Final = {
    MetricType.COUNTER: (0, 3),
    MetricType.GAUGE: (1, 2),
    MetricType.INFO: (1, 2),
    MetricType.HISTOGRAM: (4, 7),
}
_METRIC, _HISTOGRAM = 4, 7


def to_protobuf(*metrics: Metrics) -> bytes:
    """Messages of MetricFamily, delimited, of one run or several."""
    messages = []
    pairs: dict[tuple[str, str], bytes] = {}
    for family, some in by_family(metrics):
        number, field = _TYPES[family.type]
        parts = [text(1, family.name), text(2, family.about), uint(3, number)]
        for one, (_, samples, histograms) in some:
            own = _pair("run", clean(one.run)) + _pair("host", clean(one.host))
            for labels, value in samples:
                body = _labels(own, family.labels, labels, pairs) + chunk(field, double(1, value))
                parts.append(chunk(_METRIC, body))
            for histogram in histograms:
                body = _labels(own, family.labels, histogram.labels, pairs)
                parts.append(chunk(_METRIC, body + chunk(_HISTOGRAM, _histogram(histogram))))
        if family.unit:
            parts.append(text(5, family.unit))
        messages.append(delimited(b"".join(parts)))
    return b"".join(messages)


def _labels(
    own: bytes,
    names: tuple[str, ...],
    values: tuple[str, ...],
    pairs: dict[tuple[str, str], bytes],
) -> bytes:
    for name, value in zip(names, values, strict=True):
        known = pairs.get((name, value))
        if known is None:
            known = pairs[name, value] = _pair(name, value)
        own += known
    return own


def _pair(name: str, value: str) -> bytes:
    return chunk(1, text(1, name) + text(2, value))


def _histogram(it: Histogram) -> bytes:
    counts = cumulative(it.buckets)
    exemplars = {at: _exemplar(one) for at, one in newest_by_le(it).items()}
    parts = [uint(1, counts[-1]), double(2, it.sum_ns / 1e9)]
    for at, (count, bound) in enumerate(zip(counts, (*LE_SECONDS, math.inf), strict=True)):
        tail = chunk(3, exemplars[at]) if at in exemplars else b""
        parts.append(chunk(3, uint(1, count) + double(2, bound) + tail))
    form = native(it.buckets)
    parts += [sint(5, SCHEMA), double(6, ZERO_THRESHOLD_S), uint(7, form.zero_count)]
    parts += [chunk(12, sint(1, offset) + uint(2, length)) for offset, length in form.spans]
    if form.deltas:
        parts.append(packed_sints(13, form.deltas))
    return b"".join(parts)


def _exemplar(it: Exemplar) -> bytes:
    us = round(it.wall_s * 1e6)
    time = uint(1, us // 10**6) + uint(2, us % 10**6 * 1000)
    return _pair("trace_id", it.trace_id) + double(2, it.value_ns / 1e9) + chunk(3, time)
