from __future__ import annotations

import pytest

from distdbg.export.metrics.families import FAMILIES, MetricFamily, MetricType
from distdbg.export.otel.metric_names import metric_name, metric_unit

WORDS = {"s": "seconds", "By": "bytes"}


def for_prometheus(name: str, unit: str, kind: MetricType) -> str:
    """What collectors and Prometheus itself make of a name of OpenTelemetry."""
    made = name.replace(".", "_")
    word = WORDS.get(unit, "")
    if word and not made.endswith(f"_{word}"):
        made = f"{made}_{word}"
    if unit == "1" and kind is not MetricType.COUNTER and kind is not MetricType.HISTOGRAM:
        made = f"{made}_ratio"
    return f"{made}_total" if kind is MetricType.COUNTER else made


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_collector_that_writes_for_prometheus_makes_the_name_that_dashboards_ask_for(
    family: MetricFamily,
) -> None:
    assert for_prometheus(metric_name(family), metric_unit(family), family.type) == family.name
