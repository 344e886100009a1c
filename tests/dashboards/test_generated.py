"""The JSON of the dashboards is what the code makes, and the schema reads all of it back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.generate.__main__ import FOLDER, dashboards, main, stale, to_text

FILES = sorted(path.name for path in FOLDER.glob("*.json"))


def test_the_files_are_what_the_code_makes() -> None:
    assert stale() == [], "run `make dashboards`"
    assert main(["--check"]) == 0


def test_making_them_twice_makes_the_same() -> None:
    texts = [{name: to_text(one) for name, one in dashboards().items()} for _ in range(2)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", FILES)
def test_the_schema_of_grafana_loses_nothing_of_a_dashboard(name: str) -> None:
    plugins.register_default_plugins()
    written = json.loads((FOLDER / name).read_text())
    back = json.loads(json.dumps(Dashboard.from_json(written), cls=JSONEncoder))
    # What Prometheus' annotations have of their own is not in the schema of the dashboard.
    for mark in written["annotations"]["list"]:
        assert mark.pop("titleFormat")
        assert mark.pop("step")
    assert lost(written, back) == []


def lost(one: Any, other: Any, path: str = "") -> list[str]:
    """Places of what is in `one` and not in `other`, which may have more."""
    if isinstance(one, dict) and isinstance(other, dict):
        found = [f"{path}.{key}" for key in one.keys() - other.keys()]
        for key in one.keys() & other.keys():
            found += lost(one[key], other[key], f"{path}.{key}")
        return found
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        found = []
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            found += lost(left, right, f"{path}[{index}]")
        return found
    return [] if one == other else [path]
