"""Metrics as text: Prometheus' own format (0.0.4) and OpenMetrics (1.0). Pure.

Written here and not by prometheus_client, which takes eighteen times as long (27 ms of CPU for 64 ranks, here
1.5, of an agent that is scraped every few seconds); the tests compare what both write. The package is needed
for `distdbg.exporter`, which puts our runs into the registry of another program.

    # HELP distdbg_ops_total Ops that ended, as each rank counts its own calls.
    # TYPE distdbg_ops_total counter
    distdbg_ops_total{run="0412",host="n01",kind="all_reduce",group="dp",dtype="float32"} 1042

OpenMetrics names a counter without `_total` and an info without `_info` where it describes them, tells units,
ends with `# EOF`, and may give the op of a bucket that has a trace:

    ..._bucket{...,le="0.001048576"} 17 # {trace_id="1f..."} 0.00071 1763784000.25
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from distdbg.export.metrics.bounds import clean
from distdbg.export.metrics.buckets import LE_LABELS, cumulative, le_index
from distdbg.export.metrics.families import MetricFamily, MetricType
from distdbg.export.metrics.model import Exemplar, Histogram, Metrics, by_family

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

#: OpenMetrics allows so many characters of labels.
MAX_EXEMPLAR_CHARACTERS: Final = 128
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def to_text(*metrics: Metrics) -> bytes:
    """Prometheus' text, of one run or several; it has no place for exemplars."""
    return _write(metrics, is_open=False)


def to_openmetrics(*metrics: Metrics) -> bytes:
    """OpenMetrics, of one run or several, with exemplars."""
    return _write(metrics, is_open=True)


def _write(some: Sequence[Metrics], *, is_open: bool) -> bytes:
    lines: list[str] = []
    for family, parts in by_family(some):
        lines += _header(family, is_open)
        for metrics, (_, samples, histograms) in parts:
            own = f'run="{_escape(clean(metrics.run))}",host="{_escape(clean(metrics.host))}"'
            # One template for all: what differs is put in.
            places = "".join(f',{label}="%s"' for label in family.labels)
            form = f"{family.name}{{{own.replace('%', '%%')}{places}}} "
            lines += [form % tuple(map(_escape, one)) + _number(value) for one, value in samples]
            for histogram in histograms:
                lines += _histogram_lines(family, own, histogram, is_open)
    if is_open:
        lines.append("# EOF")
    lines.append("")
    return "\n".join(lines).encode("utf-8", "replace")


def _header(family: MetricFamily, is_open: bool) -> list[str]:
    name, kind = family.name, family.type.value
    if is_open:
        name = family.described_as
    elif family.type is MetricType.INFO:
        kind = MetricType.GAUGE.value
    about = family.about.replace("\\", r"\\").replace("\n", r"\n")
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    if is_open and family.unit:
        lines.append(f"# UNIT {name} {family.unit}")
    return lines


def _histogram_lines(family: MetricFamily, own: str, it: Histogram, is_open: bool) -> list[str]:
    pairs = zip(family.labels, it.labels, strict=True)
    labels = ",".join((own, *(f'{name}="{_escape(value)}"' for name, value in pairs)))
    counts = cumulative(it.buckets)
    tails = _exemplars(it) if is_open else {}
    lines = [
        f'{family.name}_bucket{{{labels},le="{le}"}} {count}{tails.get(at, "")}'
        for at, (le, count) in enumerate(zip(LE_LABELS, counts, strict=True))
    ]
    lines.append(f"{family.name}_sum{{{labels}}} {_number(it.sum_ns / 1e9)}")
    lines.append(f"{family.name}_count{{{labels}}} {counts[-1]}")
    return lines


def _exemplars(it: Histogram) -> dict[int, str]:
    """What follows the count of each bucket: its newest exemplar."""
    return {
        at: f' # {{trace_id="{_escape(one.trace_id)}"}} {_number(one.value_ns / 1e9)} {one.wall_s:.3f}'
        for at, one in newest_by_le(it).items()
    }


def newest_by_le(it: Histogram) -> dict[int, Exemplar]:
    """The newest exemplar of each classic bucket, if its labels are not too long to be told."""
    newest: dict[int, Exemplar] = {}
    for one in it.exemplars:
        at = le_index(one.value_ns)
        if at in newest and newest[at].wall_s > one.wall_s:
            continue
        if len("trace_id") + len(one.trace_id) <= MAX_EXEMPLAR_CHARACTERS:
            newest[at] = one
    return newest


def _escape(value: str) -> str:
    return value.translate(_ESCAPES) if '"' in value or "\\" in value or "\n" in value else value


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
