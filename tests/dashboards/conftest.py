"""Makes `dashboards` importable: it lies in the checkout, and no wheel contains its code.

And reads panels and queries out of the JSON, with values in the place of variables.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

if (CHECKOUT / "dashboards").is_dir():
    # Last, or the checkout's distdbg would hide an installed one.
    sys.path.append(str(CHECKOUT))
else:
    collect_ignore_glob = ["*"]

#: What Grafana fills in.
VALUES = {
    "$run": "20260102-030405-1",
    "$rank": ".*",
    "$group": ".*",
    "$kind": ".*",
    "$host": ".*",
    "$__rate_interval": "1m",
}


@dataclass(frozen=True, slots=True)
class Query:
    board: str
    place: str
    """The title of its panel, or the name of its variable or mark."""
    text: str

    @property
    def expression(self) -> str:
        """As Prometheus gets it."""
        text = self.text
        for name, value in VALUES.items():
            text = text.replace(name, value)
        return text


@pytest.fixture(scope="session")
def boards() -> dict[str, dict[str, Any]]:
    """By the name of the file."""
    folder = CHECKOUT / "dashboards" / "grafana" / "dashboards"
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


@pytest.fixture(scope="session")
def queries(boards: dict[str, dict[str, Any]]) -> list[Query]:
    """Of panels, marks and variables; of a variable the part that selects series."""
    return [query for name, board in boards.items() for query in queries_of(name, board)]


def queries_of(name: str, board: dict[str, Any]) -> Iterator[Query]:
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield Query(name, panel["title"], target["expr"])
    for mark in board["annotations"]["list"]:
        yield Query(name, mark["name"], mark["expr"])
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert match, variable
            yield Query(name, variable["name"], f"count by ({match[2]}) ({match[1]})")
