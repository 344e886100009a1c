"""What the families of metrics are called in OpenTelemetry. Pure.

    distdbg_ops_total                   distdbg.ops             a monotonic sum
    distdbg_op_duration_seconds         distdbg.op.duration     a histogram, unit s
    distdbg_op_bytes_total              distdbg.op.bytes        a monotonic sum, unit By
    distdbg_rank_up                     distdbg.rank.up         a gauge
    distdbg_build_info                  distdbg.build_info      a gauge that is 1

Without `_total` and `_seconds`; dots behind the first word and that of the subject. A collector which writes
them for Prometheus makes the names of the left out of them: it adds the unit where the name does not end
with it, and `_total` to a sum. To a gauge with the unit 1 it would add `_ratio`, so what is counted has no
unit.
"""

from __future__ import annotations

from typing import Final

from distdbg.export.metrics.families import MetricFamily

_UNITS: Final = {"seconds": "s", "bytes": "By"}
_SUBJECTS: Final = ("op", "rank", "agent")


def metric_name(family: MetricFamily) -> str:
    """'distdbg.op.duration'."""
    name = family.name.removesuffix("_total").removesuffix("_seconds")
    first, _, rest = name.partition("_")
    subject, _, left = rest.partition("_")
    return ".".join((first, subject, left) if left and subject in _SUBJECTS else (first, rest))


def metric_unit(family: MetricFamily) -> str:
    """The unit by UCUM, as OpenTelemetry wants it; '' of what is counted."""
    return _UNITS.get(family.unit, "")
