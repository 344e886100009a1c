"""One function per type of panel. Each takes a title, one sentence, a unit and queries.

Few types on purpose: those that `draw/` draws and every Grafana has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    heatmap,
    stat,
    statetimeline,
    table,
    text,
    timeseries,
)
from grafana_foundation_sdk.builders.dashboard import DashboardLink, FieldColor, ThresholdsConfig
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    DataSourceRef,
    FieldTextAlignment,
    GraphThresholdsStyleMode,
    HeatmapCellLayout,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Panel,
    ValueMap,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.table import Options as TableOptions
from grafana_foundation_sdk.models.text import TextMode

from dashboards.generate.look import steps
from dashboards.generate.queries import PROMETHEUS

REFERENCES: Final = "ABCDEFGH"
DASHED: Final = GraphThresholdsStyleMode.DASHED


class _Builder(Protocol):
    """What the builders of all types have in common; they share no class."""

    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def unit(self, unit: str) -> Self: ...
    def datasource(self, datasource: DataSourceRef) -> Self: ...
    def with_target(self, target: Dataquery) -> Self: ...
    def no_value(self, no_value: str) -> Self: ...


Built = TypeVar("Built", bound=_Builder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table: a label, or the number of a query."""

    name: str
    """What is above it."""
    unit: str = ""
    decimals: int | None = None
    width: int | None = None
    thresholds: ThresholdsConfig | None = None
    words: ValueMap | None = None
    link: tuple[str, str] | None = None
    """The words of a link and where it leads."""
    is_shown: bool = True


def _begin(
    builder: Built, title: str, about: str, unit: str, queries: Sequence[Dataquery]
) -> Built:
    builder.title(title).description(about).unit(unit).datasource(PROMETHEUS)
    for reference, query in zip(REFERENCES, queries, strict=False):
        builder.with_target(query.ref_id(reference).datasource(PROMETHEUS))
    return builder


def lines(
    title: str,
    about: str,
    unit: str,
    *queries: Dataquery,
    thresholds: ThresholdsConfig | None = None,
    colors: Mapping[str, str] | None = None,
    is_stacked: bool = False,
    is_log: bool = False,
    most: float | None = None,
    decimals: int | None = None,
    no_value: str = "",
    links: Sequence[DashboardLink] = (),
) -> Panel:
    """Series over time, with the greatest at the top of the tooltip.

    From 0 up, or `is_log` for what differs by factors: of two lines the small one is then seen too.
    `no_value` is said where it is well that there is none, lest somebody takes the panel for broken.
    """
    panel = _begin(timeseries.Panel(), title, about, unit, queries)
    if is_log:
        scale = common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10)
        panel.scale_distribution(scale)
    else:
        panel.min(0)
    panel.line_width(1).show_points(VisibilityMode.NEVER).span_nulls(False)
    # Of many lines the areas would lie on each other.
    panel.fill_opacity(60 if is_stacked else 0)
    if is_stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    if most is not None:
        panel.max(most)
    if decimals is not None:
        panel.decimals(decimals)
    if thresholds is not None:
        panel.thresholds(thresholds)
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(DASHED))
    if no_value:
        panel.no_value(no_value)
    if links:
        panel.data_links(list(links))
    # A series keeps its colour when others come and go.
    panel.color_scheme(FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    for name, color in (colors or {}).items():
        panel.override_by_name(
            name, [DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})]
        )
    panel.legend(
        common.VizLegendOptions()
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    panel.tooltip(
        common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
    )
    return panel.build()


def number(
    title: str,
    about: str,
    unit: str,
    *queries: Dataquery,
    thresholds: ThresholdsConfig,
    words: ValueMap | None = None,
    decimals: int | None = None,
    is_background: bool = True,
    no_value: str = "no data",
    links: Sequence[DashboardLink] = (),
) -> Panel:
    """The last number of the time that is shown, large."""
    panel = _begin(stat.Panel(), title, about, unit, queries)
    panel.thresholds(thresholds).no_value(no_value)
    panel.color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
    panel.color_mode(
        BigValueColorMode.BACKGROUND_SOLID if is_background else BigValueColorMode.VALUE
    )
    panel.graph_mode(BigValueGraphMode.NONE)
    panel.text_mode(
        BigValueTextMode.VALUE if len(queries) == 1 else BigValueTextMode.VALUE_AND_NAME
    )
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    if words is not None:
        panel.mappings([words])
    if decimals is not None:
        panel.decimals(decimals)
    if links:
        panel.data_links(list(links))
    return panel.build()


def ranking(
    title: str,
    about: str,
    unit: str,
    query: Dataquery,
    *,
    thresholds: ThresholdsConfig,
    most: float,
) -> Panel:
    """A bar for each series."""
    panel = _begin(bargauge.Panel(), title, about, unit, [query])
    panel.thresholds(thresholds).min(0).max(most).decimals(0)
    panel.color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
    panel.display_mode(BarGaugeDisplayMode.BASIC).orientation(VizOrientation.HORIZONTAL)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    panel.no_value("none")
    return panel.build()


def heat(title: str, about: str, query: Dataquery) -> Panel:
    """Buckets of a histogram in seconds over time; a diamond is an exemplar and leads to its trace."""
    panel = _begin(heatmap.Panel(), title, about, "s", [query])
    panel.calculate(False).cell_gap(0)
    panel.y_axis(heatmap.YAxisConfig().unit("s"))
    panel.rows_frame(heatmap.RowsHeatmapOptions().layout(HeatmapCellLayout.AUTO))
    panel.color(
        heatmap.HeatmapColorOptions()
        .mode(HeatmapColorMode.SCHEME)
        .scheme("Turbo")
        .steps(64)
        .reverse(False)
        .exponent(0.5)
        .fill("dark-orange")
    )
    panel.hide_from(common.HideSeriesConfig().tooltip(False).legend(False).viz(False))
    panel.filter_values(heatmap.FilterValueRange().le(1e-9))
    panel.exemplars_color("rgba(255,0,255,0.7)")
    panel.mode(TooltipDisplayMode.SINGLE).show_y_histogram().show_color_scale(True).show_legend()
    return panel.build()


def states(title: str, about: str, query: Dataquery, words: ValueMap) -> Panel:
    """A band for each series, whose colour and word say what it did."""
    panel = _begin(statetimeline.Panel(), title, about, "none", [query])
    panel.mappings([words]).merge_values(True).show_value(VisibilityMode.AUTO)
    panel.per_page(24).row_height(0.85).fill_opacity(80).line_width(0)
    panel.color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS)).thresholds(steps())
    panel.legend(
        common.VizLegendOptions()
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    panel.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.SINGLE))
    return panel.build()


def rows(
    title: str,
    about: str,
    queries: Sequence[Dataquery],
    columns: Mapping[str, Column],
    *,
    sort_by: str = "",
    no_value: str = "none",
) -> Panel:
    """A table. `columns` go by the name of a label or, for the numbers, by the letter of a query.

    Each query gives one row per set of labels; rows of several queries with the same labels are one.
    """
    panel = _begin(table.Panel(), title, about, "short", queries)
    panel.no_value(no_value).thresholds(steps()).show_header(True)
    panel.align(FieldTextAlignment.AUTO).inspect(False)
    fields = {_field(name, len(queries)): column for name, column in columns.items()}
    if len(queries) > 1:
        panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    hidden = ["Time", *(name for name, column in fields.items() if not column.is_shown)]
    shown = [name for name, column in fields.items() if column.is_shown]
    panel.with_transformation(
        DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": dict.fromkeys(hidden, True),
                "indexByName": {name: index for index, name in enumerate(shown)},
                "renameByName": {name: fields[name].name for name in shown},
            },
        )
    )
    for name in shown:
        if properties := _properties(fields[name]):
            panel.override_by_name(fields[name].name, properties)
    if sort_by:
        panel.sort_by([common.TableSortByFieldState().display_name(sort_by).desc(True)])
    built = panel.build()
    if isinstance(built.options, TableOptions):
        built.options.footer = None  # of Grafana before 12.2
    return built


def _field(name: str, count: int) -> str:
    """What Grafana calls the column: the number of the only query has no letter."""
    if len(name) == 1:
        return "Value" if count == 1 else f"Value #{name}"
    return name


def _properties(column: Column) -> list[DynamicConfigValue]:
    found = []
    if column.unit:
        found.append(DynamicConfigValue("unit", column.unit))
    if column.decimals is not None:
        found.append(DynamicConfigValue("decimals", column.decimals))
    if column.width is not None:
        found.append(DynamicConfigValue("custom.width", column.width))
    if column.words is not None:
        found.append(DynamicConfigValue("mappings", [column.words.to_json()]))
    if column.thresholds is not None:
        found.append(DynamicConfigValue("thresholds", column.thresholds.build().to_json()))
    if column.thresholds is not None or column.words is not None:
        found.append(DynamicConfigValue("custom.cellOptions", {"type": "color-text"}))
    if column.link is not None:
        text_of_link, url = column.link
        found.append(DynamicConfigValue("links", [{"title": text_of_link, "url": url}]))
    return found


def words_of(title: str, about: str, content: str) -> Panel:
    """Markdown."""
    panel = text.Panel().title(title).description(about)
    return panel.mode(TextMode.MARKDOWN).content(content).build()
