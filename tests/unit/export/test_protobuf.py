from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from distdbg.export.metrics.buckets import LE_SECONDS, bucket_of, cumulative, le_index, native
from distdbg.export.metrics.collect import collect
from distdbg.export.metrics.families import FAMILIES, MetricType
from distdbg.export.metrics.protobuf import to_protobuf
from distdbg.export.metrics.totals import Accumulator
from distdbg.record.format import BUCKET_COUNT
from tests.unit.export.made_up import buckets, count, host, job_of, rank
from tests.unit.export.prometheus_messages import read
from tests.unit.export.test_text import TRACE, samples, whole

_NUMBERS = {MetricType.COUNTER: 0, MetricType.GAUGE: 1, MetricType.INFO: 1, MetricType.HISTOGRAM: 4}


def test_every_family_is_read_back_by_the_definitions() -> None:
    found = read(to_protobuf(whole()))
    assert list(found) == [family.name for family in FAMILIES]
    for family in FAMILIES:
        one = found[family.name]
        assert (one.help, one.type, one.unit) == (
            family.about,
            _NUMBERS[family.type],
            family.unit,
        )


def test_protobuf_says_the_same_as_text() -> None:
    metrics = whole()
    reported = samples(metrics, is_open=True)
    found = {}
    for family in read(to_protobuf(metrics)).values():
        for metric in family.metric:
            labels = tuple(sorted((one.name, one.value) for one in metric.label))
            if family.type == 4:
                found[f"{family.name}_sum", labels] = metric.histogram.sample_sum
                found[f"{family.name}_count", labels] = metric.histogram.sample_count
                for one in metric.histogram.bucket:
                    bound = "+Inf" if math.isinf(one.upper_bound) else repr(one.upper_bound)
                    key = tuple(sorted((*labels, ("le", bound))))
                    found[f"{family.name}_bucket", key] = one.cumulative_count
            else:
                value = metric.counter if family.type == 0 else metric.gauge
                found[family.name, labels] = value.value
    assert found == reported


def decoded(histogram: object) -> dict[float, int]:
    """By upper bound in seconds."""
    found = {}
    at = total = 0
    deltas = iter(histogram.positive_delta)
    for span in histogram.positive_span:
        at += span.offset
        for _ in range(span.length):
            total += next(deltas)
            found[2.0**at] = total
            at += 1
    assert not list(deltas)
    return found


@given(st.lists(st.integers(0, 10**6), min_size=BUCKET_COUNT, max_size=BUCKET_COUNT))
def test_a_native_histogram_has_every_bucket_where_most_of_it_lies(counts: list[int]) -> None:
    facts = host(rank(0, [count(duration_buckets=tuple(counts), duration_ns=sum(counts) * 1000)]))
    totals = Accumulator()
    totals.take(facts)
    message = read(to_protobuf(collect(facts, totals, job_of([totals]))))
    histogram = message["distdbg_op_duration_seconds"].metric[0].histogram
    assert histogram.schema == 0
    assert histogram.sample_count == sum(counts)
    assert histogram.zero_count == counts[0]
    found = decoded(histogram)
    assert sum(found.values()) == sum(counts[1:])
    for i, some in enumerate(counts[1:], start=1):
        if some:
            bound = 2.0 ** (i - 29)
            assert found[bound] == some
            # The bounds of the record's bucket are 7.4 % above.
            assert bound < 2 ** (i + 1) / 1e9 < bound * 1.074


def test_an_empty_histogram_is_still_native() -> None:
    form = native(buckets())
    assert (form.zero_count, form.spans, form.deltas) == (0, (), ())


def test_empty_buckets_between_are_left_out() -> None:
    assert native(buckets(b0=2, b29=5, b30=3, b35=4)).spans == ((0, 2), (4, 1))
    assert native(buckets(b0=2, b29=5, b30=3, b35=4)).deltas == (5, -2, 1)


@given(st.integers(0, 2**45))
def test_a_value_is_in_the_bucket_that_counts_it(ns: int) -> None:
    counts = [0] * BUCKET_COUNT
    counts[bucket_of(ns)] = 1
    assert cumulative(counts).index(1) == le_index(ns)
    if le_index(ns) < len(LE_SECONDS):
        assert ns / 1e9 <= LE_SECONDS[le_index(ns)]


def test_exemplars_are_in_the_classic_buckets() -> None:
    some = {("all_reduce", "dp"): [(1500, TRACE, 1_763_784_000.25)]}
    families = read(to_protobuf(whole(exemplars=some)))
    one = next(
        metric.histogram
        for metric in families["distdbg_op_duration_seconds"].metric
        if ("kind", "all_reduce") in [(label.name, label.value) for label in metric.label]
    )
    found = [bucket.exemplar for bucket in one.bucket if bucket.HasField("exemplar")]
    assert [(it.label[0].name, it.label[0].value, it.value) for it in found] == [
        ("trace_id", TRACE, 1.5e-6)
    ]
    assert (found[0].timestamp.seconds, found[0].timestamp.nanos) == (1_763_784_000, 250_000_000)
