"""Metrics as opentelemetry-sdk's, for its exporters: the same families that are served to Prometheus.

Labels are attributes of the same names, `run` and `host` too, so that what a collector hands on to Prometheus
is asked for as what is scraped. Sums are cumulative from `began_ns` on. Histograms have the bounds of the
classic ones there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as SdkHistogram

from distdbg.export.metrics.bounds import clean
from distdbg.export.metrics.buckets import LE_SECONDS, cumulative
from distdbg.export.metrics.families import MetricFamily, MetricType
from distdbg.export.metrics.model import Histogram, Metrics
from distdbg.export.metrics.text import newest_by_le
from distdbg.export.otel.ids import root_span_id
from distdbg.export.otel.metric_names import metric_name, metric_unit
from distdbg.export.otel.sdk import SCOPE

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


def to_sdk_metrics(
    metrics: Metrics, resource: Resource, *, began_ns: int, now_ns: int
) -> MetricsData:
    """As exporters take it. Times are wall nanoseconds."""
    made = tuple(_each(metrics, began_ns, now_ns))
    scope = ScopeMetrics(SCOPE, made, "")
    return MetricsData((ResourceMetrics(resource, (scope,), ""),))


def _each(metrics: Metrics, began_ns: int, now_ns: int) -> Iterator[Metric]:
    own = {"run": clean(metrics.run), "host": clean(metrics.host)}
    for family, samples, histograms in metrics:
        data: Sum | Gauge | SdkHistogram
        if family.type is MetricType.HISTOGRAM:
            points = [_histogram(family, own, one, began_ns, now_ns) for one in histograms]
            data = SdkHistogram(points, _CUMULATIVE)
        else:
            is_sum = family.type is MetricType.COUNTER
            numbers = [
                NumberDataPoint(
                    attributes=_attributes(family, own, labels),
                    start_time_unix_nano=began_ns if is_sum else 0,
                    time_unix_nano=now_ns,
                    value=value,
                )
                for labels, value in samples
            ]
            data = Sum(numbers, _CUMULATIVE, is_monotonic=True) if is_sum else Gauge(numbers)
        if data.data_points:
            yield Metric(metric_name(family), family.about, metric_unit(family), data)


def _attributes(family: MetricFamily, own: dict[str, str], labels: Sequence[str]) -> dict[str, str]:
    return own | dict(zip(family.labels, labels, strict=True))


def _histogram(
    family: MetricFamily, own: dict[str, str], it: Histogram, began_ns: int, now_ns: int
) -> HistogramDataPoint:
    below = cumulative(it.buckets)
    counts = [count - before for count, before in zip(below, [0, *below], strict=False)]
    return HistogramDataPoint(
        attributes=_attributes(family, own, it.labels),
        start_time_unix_nano=began_ns,
        time_unix_nano=now_ns,
        count=sum(it.buckets),
        sum=it.sum_ns / 1e9,
        bucket_counts=counts,
        explicit_bounds=LE_SECONDS,
        min=None,  # type: ignore[arg-type]  # optional in the protocol, and not known
        max=None,  # type: ignore[arg-type]
        exemplars=[
            _exemplar(one.value_ns, one.trace_id, one.wall_s) for one in newest_by_le(it).values()
        ],
    )


def _exemplar(value_ns: int, trace: str, wall_s: float) -> Exemplar:
    trace_id = int(trace, 16)
    return Exemplar(
        filtered_attributes={},
        value=value_ns / 1e9,
        time_unix_nano=int(wall_s * 1e9),
        span_id=root_span_id(trace_id),
        trace_id=trace_id,
    )
