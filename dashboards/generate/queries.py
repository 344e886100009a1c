"""Common parts of expressions, and queries.

`$run`, `$rank`, `$group` and `$kind` are the variables at the top of a dashboard. A rate is over
`$__rate_interval`, which Grafana makes long enough for at least four scrapes.
"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

PROMETHEUS: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")

RUN: Final = 'run="$run"'
RANK: Final = 'rank=~"$rank"'
GROUP: Final = 'group=~"$group"'
KIND: Final = 'kind=~"$kind"'

#: A rank that has not moved for this long is worth a look; an op that takes as long is rare.
STILL_S: Final = 10
#: And this long needs a reason.
STUCK_S: Final = 60
#: A gauge has the name without `_made`.
FINDINGS_MADE: Final = "distdbg_findings_made_total"
#: Beyond this share of the late arrivals a rank is called late, as by `distdbg:rank_late_share:costly` and
#: with it the alert. Two that take turns have half each.
LATE: Final = 0.5


def of(metric: str, *matchers: str) -> str:
    """The series of one run that the dashboard is about."""
    return f"{metric}{{{', '.join((RUN, *matchers))}}}"


def rate(metric: str, *matchers: str) -> str:
    return f"rate({of(metric, *matchers)}[$__rate_interval])"


def with_host(expression: str) -> str:
    """`expression`, which is by rank, with the host of each rank."""
    hosts = f"max by (rank, host) ({of('distdbg_rank_up')})"
    return f"0 * {hosts} + on (rank) group_left () max by (rank) ({expression})"


def or_zero(expression: str) -> str:
    """0 where a job lives that has none: the last number of a range is then no old one."""
    return f"({expression}) or 0 * max({of('distdbg_world_size')})"


def behind(*matchers: str) -> str:
    """By rank and group: how many collectives it has called less than who called most."""
    return (
        f"max by (run, group) ({of('distdbg_rank_seq')})"
        f" - on (run, group) group_right () {of('distdbg_rank_seq', *matchers)}"
    )


def lives(expression: str) -> str:
    """Of the ranks in `expression` those whose process lives."""
    return f"{expression} and on (run, rank) {of('distdbg_rank_up')} == 1"


def range_query(expression: str, legend: str, *, exemplar: bool = False) -> Dataquery:
    """A line over time for each series; `legend` may name labels in double braces."""
    query = Dataquery().expr(expression).legend_format(legend).range()
    return query.exemplar(exemplar) if exemplar else query


def instant_query(expression: str, legend: str) -> Dataquery:
    """One number for each series, at the end of the time that is shown."""
    return Dataquery().expr(expression).legend_format(legend).instant()


def column(expression: str) -> Dataquery:
    """One column of a table, and one for each label."""
    return Dataquery().expr(expression).format(PromQueryFormat.TABLE).instant()


def buckets(metric: str, *matchers: str) -> Dataquery:
    """What fell into each bucket of a histogram, for a heatmap; with exemplars."""
    expression = f"sum by (le) (increase({of(f'{metric}_bucket', *matchers)}[$__rate_interval]))"
    query = Dataquery().expr(expression).format(PromQueryFormat.HEATMAP)
    return query.legend_format("{{le}}").range().exemplar(True)
