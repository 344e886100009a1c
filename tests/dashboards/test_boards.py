"""Every panel says what it shows, and stands in a place of its own."""

from __future__ import annotations

import re
from typing import Any

import pytest

COLUMNS = 24
#: What every renderer of ours can draw.
TYPES = {
    "timeseries",
    "stat",
    "table",
    "heatmap",
    "bargauge",
    "text",
    "state-timeline",
}
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}


@pytest.fixture(scope="session")
def panels(boards: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, panel) for name, board in boards.items() for panel in board["panels"]]


def test_there_are_the_five_that_are_promised(boards: dict[str, Any]) -> None:
    assert sorted(boards) == [
        "distdbg-agent.json",
        "distdbg-groups.json",
        "distdbg-overview.json",
        "distdbg-ranks.json",
        "distdbg-stragglers.json",
    ]
    assert [f"{board['uid']}.json" for board in boards.values()] == list(boards)


def test_every_panel_has_a_title_and_one_sentence(panels: list[Any]) -> None:
    for name, panel in panels:
        assert panel["type"] in TYPES, (name, panel["title"])
        assert re.fullmatch(r"[A-Z][^.]{2,}", panel["title"]), (name, panel["title"])
        assert re.fullmatch(r"[A-Z][^.]{20,}\.", panel["description"]), (name, panel["title"])


def test_titles_are_not_twice_in_a_dashboard(boards: dict[str, Any]) -> None:
    for name, board in boards.items():
        titles = [panel["title"] for panel in board["panels"]]
        assert len(set(titles)) == len(titles), name


def test_every_panel_has_a_unit_and_the_data_source_of_the_variable(panels: list[Any]) -> None:
    for name, panel in panels:
        if panel["type"] == "text":
            continue
        place = (name, panel["title"])
        assert panel["fieldConfig"]["defaults"]["unit"], place
        assert panel["datasource"] == PROMETHEUS, place
        assert panel["targets"], place
        for target in panel["targets"]:
            assert target["datasource"] == PROMETHEUS, place
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references), place


def test_every_number_in_a_table_has_a_unit_or_words(panels: list[Any]) -> None:
    for name, panel in panels:
        if panel["type"] != "table":
            continue
        [shape] = [one["options"] for one in panel["transformations"] if one["id"] == "organize"]
        said = {
            override["matcher"]["options"]: {one["id"] for one in override["properties"]}
            for override in panel["fieldConfig"]["overrides"]
        }
        for field, column in shape["renameByName"].items():
            if field.startswith("Value"):
                assert said.get(column, set()) & {"unit", "mappings"}, (name, column)


def test_panels_are_inside_the_grid_and_do_not_overlap(boards: dict[str, Any]) -> None:
    for name, board in boards.items():
        taken: dict[tuple[int, int], str] = {}
        for panel in board["panels"]:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= COLUMNS, (name, panel["title"])
            for x in range(at["x"], at["x"] + at["w"]):
                for y in range(at["y"], at["y"] + at["h"]):
                    assert (x, y) not in taken, (name, panel["title"], taken.get((x, y)))
                    taken[x, y] = panel["title"]
        rows = max(y for _, y in taken) + 1
        assert len(taken) == COLUMNS * rows, f"{name} has a hole"


def test_panels_are_numbered_once(boards: dict[str, Any]) -> None:
    for name, board in boards.items():
        numbers = [panel["id"] for panel in board["panels"]]
        assert numbers == list(range(1, len(numbers) + 1)), name


def test_no_panel_has_a_second_axis(panels: list[Any]) -> None:
    for name, panel in panels:
        properties = [
            one
            for override in panel.get("fieldConfig", {}).get("overrides", ())
            for one in override["properties"]
        ]
        assert not [one for one in properties if one["id"] == "custom.axisPlacement"], name
        assert not [one for one in properties if one["id"] == "unit"] or panel["type"] == "table"


def test_every_dashboard_begins_with_the_data_source_and_the_job(boards: dict[str, Any]) -> None:
    for board in boards.values():
        names = [variable["name"] for variable in board["templating"]["list"]]
        assert names[:2] == ["datasource", "run"]
        for variable in board["templating"]["list"][2:]:
            assert variable["multi"]
            assert variable["includeAll"]
            assert variable["query"]["query"].startswith("label_values(")


def test_dashboards_lead_to_each_other_with_the_same_job_and_time(boards: dict[str, Any]) -> None:
    for board in boards.values():
        [link] = board["links"]
        assert link["type"] == "dashboards"
        assert set(link["tags"]) <= set(board["tags"])
        assert link["includeVars"]
        assert link["keepTime"]


def test_links_of_panels_lead_to_dashboards_that_exist_or_to_traces(boards: dict[str, Any]) -> None:
    ids = {board["uid"] for board in boards.values()}
    for board in boards.values():
        for url in re.findall(r"'url': '([^']*)'", str(board["panels"])):
            match = re.match(r"/d/([\w-]+)\?|/explore\?", url)
            assert match, url
            assert match[1] is None or match[1] in ids, url
            if match[1]:
                assert "${run:queryparam}" in url
                assert "${__url_time_range}" in url


def test_the_first_row_of_the_overview_says_whether_it_moves_and_who_is_to_blame(
    boards: dict[str, Any],
) -> None:
    panels = boards["distdbg-overview.json"]["panels"]
    first = [panel["title"] for panel in panels if panel["gridPos"]["y"] == 0]
    assert first[0] == "Last progress"
    assert first[-1] == "Cause"
