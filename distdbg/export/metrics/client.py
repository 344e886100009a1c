"""Metrics as prometheus_client's own objects, for a program that serves others beside ours. Pure.

The only module that loads prometheus_client besides `distdbg.exporter`, for whom it is: what an agent serves
is written by text.py and protobuf.py.

Made of values and not of text.py's text by its parser, which takes thirty times as long (76 ms of CPU for 64
ranks, here 2.4). Native histograms are left out: its writers do not know them.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar

from distdbg.export.metrics.bounds import clean
from distdbg.export.metrics.buckets import LE_LABELS, cumulative
from distdbg.export.metrics.families import FAMILIES, MetricFamily
from distdbg.export.metrics.model import Histogram, Metrics, by_family
from distdbg.export.metrics.text import newest_by_le


def to_client(*metrics: Metrics) -> Iterator[Metric]:
    """Each family once, with what each of several runs has of it."""
    for family, parts in by_family(metrics):
        made = _empty(family)
        for some, (_, samples, histograms) in parts:
            own = {"run": clean(some.run), "host": clean(some.host)}
            for values, value in samples:
                labels = own | dict(zip(family.labels, values, strict=True))
                made.add_sample(family.name, labels, value)
            for one in histograms:
                _add_histogram(made, family, own, one)
        yield made


def describe() -> Iterator[Metric]:
    """All families, without a sample: what a registry looks at so that no name is there twice."""
    return map(_empty, FAMILIES)


def _empty(family: MetricFamily) -> Metric:
    return Metric(family.described_as, family.about, family.type.value, family.unit)


def _add_histogram(made: Metric, family: MetricFamily, own: dict[str, str], it: Histogram) -> None:
    labels = own | dict(zip(family.labels, it.labels, strict=True))
    newest = newest_by_le(it)
    counts = cumulative(it.buckets)
    for at, (le, count) in enumerate(zip(LE_LABELS, counts, strict=True)):
        one = newest.get(at)
        reported = None
        if one is not None:
            reported = Exemplar(
                {"trace_id": one.trace_id}, one.value_ns / 1e9, round(one.wall_s, 3)
            )
        made.add_sample(f"{family.name}_bucket", labels | {"le": le}, count, exemplar=reported)
    made.add_sample(f"{family.name}_sum", labels, it.sum_ns / 1e9)
    made.add_sample(f"{family.name}_count", labels, it.total)
