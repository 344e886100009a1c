"""The pictures of dashboards, from what a Prometheus would have said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dashboards.draw.ask import Table, ask_lines, ask_table
from dashboards.draw.axes import Rounding, Scale, log_ticks, nice, nice_log, ticks
from dashboards.draw.fill import Shown, choose, one_of
from dashboards.draw.page import page
from dashboards.draw.panels import timeseries
from dashboards.draw.shapes import Box
from dashboards.draw.table import table
from dashboards.draw.units import say

BOARDS = sorted((Path(__file__).parents[2] / "dashboards/grafana/dashboards").glob("*.json"))
SHOWN = Shown(begin_s=1000, end_s=1600, scrape_s=5, chosen={"run": "a", "rank": "(1|2)"})
Series = tuple[dict[str, str], list[tuple[float, float]]]


class Said:
    """A Prometheus that says the same to everybody."""

    def __init__(self, *series: Series) -> None:
        self.series = list(series)
        self.asked: list[str] = []

    def query(self, expression: str, at_s: float | None = None) -> list[Series]:
        self.asked.append(expression)
        return [(labels, points[-1:]) for labels, points in self.series]

    def query_range(self, expression: str, begin_s: float, end_s: float, step_s: float) -> Any:
        self.asked.append(expression)
        return self.series


def labelled(**labels: str) -> Series:
    return labels, [(1000.0 + 5 * n, float(n % 4)) for n in range(120)]


def test_a_query_is_filled_as_grafana_fills_it() -> None:
    text = 'rate(x{run="$run", rank=~"${rank:regex}"}[$__rate_interval])'
    assert SHOWN.fill(text) == 'rate(x{run="a", rank=~"(1|2)"}[20s])'
    assert SHOWN.fill('label_replace(x, "a", "$1", "b", "(.*)")').count("$1") == 1
    with pytest.raises(KeyError, match="no variable job"):
        SHOWN.fill('x{job="$job"}')


def test_values_of_a_variable_are_joined_to_a_regular_expression() -> None:
    assert one_of(["1"]) == "1"
    assert one_of(["a.b", "(other)"]) == r"(a\\.b|\\(other\\))"


def test_the_newest_job_is_chosen_and_all_of_its_ranks() -> None:
    said = Said(labelled(run="20261121"), labelled(run="20261122"))
    board = json.loads((BOARDS[0].parent / "distdbg-ranks.json").read_text())
    chosen = choose(board, said, Shown(begin_s=0, end_s=60)).chosen
    assert chosen["run"] == "20261122"
    assert chosen["rank"] == ".*"
    assert said.asked[0] == "last_over_time(distdbg_world_size[60s])"


def test_a_series_is_called_what_the_legend_says() -> None:
    panel = {"targets": [{"expr": "x", "legendFormat": "rank {{rank}} in {{ group }}"}]}
    assert ask_lines(panel, Said(labelled(rank="3", group="tp")), SHOWN)[0].name == "rank 3 in tp"


def test_rows_of_a_table_are_joined_by_the_columns_that_all_queries_have() -> None:
    answers = {
        "a": [({"host": "n1", "version": "2"}, [(0.0, 1.0)])],
        "b": [({"host": "n1"}, [(0.0, 7.0)]), ({"host": "n2"}, [(0.0, 8.0)])],
    }

    class Two(Said):
        def query(self, expression: str, at_s: float | None = None) -> list[Series]:
            return answers[expression]

    panel = {
        "targets": [
            {"refId": "A", "expr": "a", "instant": True},
            {"refId": "B", "expr": "b", "instant": True},
        ],
        "transformations": [
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Value #A": True},
                    "indexByName": {"host": 0, "Value #B": 1, "version": 2},
                    "renameByName": {"host": "Host"},
                },
            },
        ],
    }
    assert ask_table(panel, Two(), SHOWN) == Table(
        ["Host", "Value #B", "version"],
        [
            {"Host": "n1", "version": "2", "Value #B": 7.0},
            {"Host": "n2", "Value #B": 8.0},
        ],
    )


@pytest.mark.parametrize(
    ("value", "unit", "decimals", "text"),
    [
        (0.00102, "s", None, "1.02 ms"),
        (90, "s", None, "1.5 min"),
        (7200, "s", 0, "2 hours"),
        (0.875, "percentunit", None, "87.5%"),
        (3 * 2**30, "bytes", 1, "3.0 GiB"),
        (30_900_000_000, "Bps", None, "30.9 GB/s"),
        (343.2, "ops", None, "343 ops/s"),
        (4, "none", None, "4"),
        (1_795_000_000_000, "dateTimeAsIso", None, "2026-11-18 11:06:40"),
    ],
)
def test_numbers_are_said_as_people_read_them(
    value: float, unit: str, decimals: int | None, text: str
) -> None:
    assert say(value, unit, decimals) == text


def test_ticks_are_round_and_not_finer_than_what_is_written() -> None:
    assert ticks(0, 1, 4, Rounding()) == [0, 0.25, 0.5, 0.75, 1]
    assert ticks(0, 2, 8, Rounding(least=1)) == [0, 1, 2]
    assert ticks(0, 40 * 2**20, 3, Rounding(base=2)) == [0, 16 * 2**20, 32 * 2**20]
    assert nice([3.2], 0, None, Rounding()) == (0, 4)


def test_an_axis_of_decades_has_room_for_the_small_and_the_large() -> None:
    assert nice_log([0.0003, 0.25, 0.0]) == (0.0001, 1.0)
    assert nice_log([0.002]) == (0.001, 0.01)
    assert nice_log([0.0, 0.0]) == (1.0, 10.0)
    assert log_ticks(0.001, 1, 5) == pytest.approx([0.001, 0.01, 0.1, 1])
    assert log_ticks(1, 100, 8) == pytest.approx([1, 2, 5, 10, 20, 50, 100])
    assert log_ticks(1, 1e8, 4) == pytest.approx([1, 1e3, 1e6])
    assert Scale(0.001, 10, 0, 400, is_log=True).inside(0.1) == pytest.approx(200)
    assert Scale(0.001, 10, 0, 400, is_log=True).inside(0) == 0


def test_a_panel_of_decades_is_drawn_so() -> None:
    targets = [{"refId": "A", "expr": "x", "legendFormat": "{{kind}}"}]
    defaults = {"unit": "s", "custom": {"scaleDistribution": {"type": "log", "log": 10}}}
    panel = {"type": "timeseries", "targets": targets, "fieldConfig": {"defaults": defaults}}
    small = {"kind": "a"}, [(1000.0, 1e-5), (1005.0, 2e-5)]
    large = {"kind": "b"}, [(1000.0, 0.0), (1005.0, 0.3)]
    drawn = "".join(timeseries(panel, Said(small, large), SHOWN, Box(0, 0, 600, 300), []))
    for word in (">10 µs<", ">1 ms<", ">100 ms<", ">1 s<"):
        assert word in drawn


def test_a_word_of_a_table_is_said_as_its_mapping_says() -> None:
    why = {"dead rank": {"text": "dead rank: its process died", "color": "red", "index": 0}}
    properties = [{"id": "mappings", "value": [{"type": "value", "options": why}]}]
    panel = {
        "targets": [{"refId": "A", "expr": "x", "instant": True}],
        "fieldConfig": {
            "defaults": {},
            "overrides": [
                {"matcher": {"id": "byName", "options": "why"}, "properties": properties}
            ],
        },
    }
    said = Said(({"why": "dead rank"}, [(0.0, 1.0)]), ({"why": "another"}, [(0.0, 1.0)]))
    drawn = "".join(table(panel, said, SHOWN, Box(0, 0, 600, 300), []))
    assert ">dead rank: its process died<" in drawn
    assert ">another<" in drawn


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_panel_is_drawn_with_data_and_without(path: Path) -> None:
    board = json.loads(path.read_text())
    full = labelled(
        run="a", host="n", rank="1", group="g", kind="all_reduce", state="dead", le="0.1", why="x"
    )
    for said in (Said(full), Said()):
        picture = page(board, said, choose(board, said, SHOWN))
        words = [it.text or "" for it in ElementTree.fromstring(picture).iter()]
        for panel in board["panels"]:
            assert panel["title"] in words
        # None is the word of a program, not of a person.
        assert not any("None" in it or "nan" in it for it in words)
