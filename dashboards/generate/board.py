"""A dashboard around rows of panels: variables, links, annotations, places on the grid.

The grid has 24 columns. Row by row, panels stand beside each other from the left, all as high as their
row; numbers of panels count from 1 in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders.dashboard import (
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
)
from grafana_foundation_sdk.models.dashboard import (
    AnnotationContainer,
    AnnotationQuery,
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    GridPos,
    Panel,
    RowPanel,
    VariableRefresh,
    VariableSort,
)

from dashboards.generate.links import TAG
from dashboards.generate.queries import FINDINGS_MADE, PROMETHEUS, of

COLUMNS: Final = 24


@dataclass(frozen=True, slots=True)
class Row:
    """Panels beside each other with their widths, which add up to 24; under a heading if it has one."""

    height: int
    panels: Sequence[tuple[int, Panel]]
    heading: str = ""


class PrometheusAnnotation(AnnotationQuery):
    """With what the builders leave out although Grafana reads it: what a mark says."""

    def __init__(self, *, name: str, expr: str, color: str, title: str) -> None:
        super().__init__(name=name, datasource=PROMETHEUS, icon_color=color, expr=expr)
        self.title = title

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "titleFormat": self.title, "step": "10s"}


def board(
    uid: str, title: str, about: str, rows: Sequence[Row], variables: Sequence[QueryVariable] = ()
) -> Dashboard:
    """The dashboard with all that is the same in each: `$datasource`, `$run`, links and marks."""
    builder = builders.Dashboard(title).uid(uid).description(about).tags([TAG, "generated"])
    builder.editable().tooltip(DashboardCursorSync.CROSSHAIR).timezone("browser")
    builder.time("now-30m", "now").refresh("10s")
    builder.with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    builder.with_variable(
        query_variable("run", "Job", "label_values(distdbg_world_size, run)").sort(
            VariableSort.ALPHABETICAL_DESC
        )  # names begin with the date: the latest first
    )
    for variable in variables:
        builder.with_variable(variable)
    builder.link(
        DashboardLink("distdbg")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
        .icon("dashboard")
        .tooltip("The other dashboards, for the same job and time.")
    )
    dashboard = builder.build()
    dashboard.annotations = AnnotationContainer(list_val=marks())
    dashboard.panels = place(rows)
    if dashboard.templating is not None:
        for one in dashboard.templating.list_val or ():
            one.auto = one.auto_min = one.auto_count = None  # of another type of variable
    return dashboard


def query_variable(name: str, label: str, query: str) -> QueryVariable:
    """The values of a label, asked for again whenever the time changes."""
    return (
        QueryVariable(name)
        .label(label)
        .datasource(PROMETHEUS)
        .query({"query": query, "refId": f"variable-{name}", "qryType": 1})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def choice(name: str, label: str, metric: str) -> QueryVariable:
    """One, several or all values of the label `name` among the series of the job."""
    query = f"label_values({of(metric)}, {name})"
    return (
        query_variable(name, label, query)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .sort(VariableSort.NUMERICAL_ASC if name == "rank" else VariableSort.ALPHABETICAL_ASC)
    )


def marks() -> list[AnnotationQuery]:
    """What came about since the step before; this sees a counter that began above 0, too."""
    made = f"max by (kind) ({of(FINDINGS_MADE)})"
    made_before = f"max by (kind) ({of(FINDINGS_MADE)} offset $__rate_interval)"
    restarts = of("distdbg_restarts_total")
    return [
        PrometheusAnnotation(
            name="Findings",
            expr=f"{made} > ({made_before} or 0 * {made})",
            color="orange",
            title="finding: {{kind}}",
        ),
        PrometheusAnnotation(
            name="Restarts",
            expr=f"max({restarts}) > (max({restarts} offset $__rate_interval) or 0 * max({restarts}))",
            color="red",
            title="the ranks were started again",
        ),
    ]


def place(rows: Sequence[Row]) -> list[Panel | RowPanel]:
    """All panels with their numbers and places."""
    placed: list[Panel | RowPanel] = []
    y = 0
    for row in rows:
        if row.heading:
            at = GridPos(x=0, y=y, w=COLUMNS, h=1)
            placed.append(
                RowPanel(title=row.heading, id_val=len(placed) + 1, grid_pos=at, collapsed=False)
            )
            y += 1
        x = 0
        for width, panel in row.panels:
            panel.id_val = len(placed) + 1
            panel.grid_pos = GridPos(x=x, y=y, w=width, h=row.height)
            placed.append(panel)
            x += width
        if x != COLUMNS:
            raise ValueError(f"the panels of row {row.panels[0][1].title!r} are {x} columns wide")
        y += row.height
    return placed
