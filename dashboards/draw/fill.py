"""What Grafana makes of a query before it asks Prometheus: variables and intervals.

Pure, but that the values of variables are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

#: Data, as JSON has them.
Json: TypeAlias = dict[str, Any]
Series: TypeAlias = tuple[dict[str, str], list[tuple[float, float]]]

#: `$name`, `${name}`, `${name:format}`, `[[name]]`.
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}|\[\[(\w+)\]\]")
_LABEL_VALUES = re.compile(r"label_values\((?:(.*),)?\s*(\w+)\s*\)", re.DOTALL)
_SPECIAL = re.compile(r"[\\^$.*+?()\[\]{}|]")


class Asked(Protocol):
    """What answers: `tests.support.prometheus`."""

    def query(self, expression: str, at_s: float | None = None) -> list[Series]: ...
    def query_range(
        self, expression: str, begin_s: float, end_s: float, step_s: float
    ) -> list[Series]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The time that is shown, and what is chosen at the top."""

    begin_s: float
    end_s: float
    scrape_s: float = 15.0
    """How often Prometheus scrapes, as its data source in Grafana says."""
    most_points: int = 300
    """Of a line: a panel is not much wider in pixels."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """By variable, as it stands in a query."""

    @property
    def step_s(self) -> float:
        """The time between two points."""
        return max((self.end_s - self.begin_s) / self.most_points, self.scrape_s, 1.0)

    @property
    def rate_interval_s(self) -> float:
        """At least four scrapes, so that one may be missed."""
        return max(self.step_s + self.scrape_s, 4 * self.scrape_s)

    def fill(self, text: str) -> str:
        """`text` with all variables in it; one that is not known is an error."""
        values = {
            "__rate_interval": _seconds(self.rate_interval_s),
            "__interval": _seconds(self.step_s),
            "__range": _seconds(self.end_s - self.begin_s),
            **self.chosen,
        }

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2] or match[3]
            if name.isdigit():  # of label_replace
                return match[0]
            if name not in values:
                raise KeyError(f"no variable {name}: {text}")
            return values[name]

        return _VARIABLE.sub(value, text)


def choose(
    board: Json, server: Asked, shown: Shown, wanted: Mapping[str, str] | None = None
) -> Shown:
    """`shown` with a value for each variable of a dashboard: what is wanted, else all, else the first."""
    chosen = dict(shown.chosen)
    for variable in board["templating"]["list"]:
        name = variable["name"]
        if variable["type"] == "datasource":
            chosen[name] = "prometheus"
        elif wanted and name in wanted:
            chosen[name] = wanted[name]
        elif variable.get("includeAll"):
            chosen[name] = variable.get("allValue") or ".*"
        else:
            now = _with(shown, chosen)
            found = values_of(variable, server, now)
            chosen[name] = _in_order(found, variable.get("sort", 0))[0] if found else ""
    return _with(shown, chosen)


def values_of(variable: Json, server: Asked, shown: Shown) -> list[str]:
    """What may be chosen for a variable."""
    query = variable["query"]["query"] if isinstance(variable["query"], dict) else variable["query"]
    match = _LABEL_VALUES.fullmatch(shown.fill(query).strip())
    if match is None:
        raise ValueError(f"only label_values is understood: {query}")
    selector, label = (match[1] or f'{{{match[2]}!=""}}').strip(), match[2]
    # All that was there within the time shown, as Grafana asks for series.
    seconds = _seconds(shown.end_s - shown.begin_s)
    found = server.query(f"last_over_time({selector}[{seconds}])", shown.end_s)
    return sorted({labels[label] for labels, _ in found if label in labels})


def one_of(values: Iterable[str]) -> str:
    """Several values of a variable, as Grafana puts them into a regular expression."""
    escaped = [_SPECIAL.sub(r"\\\\\g<0>", value) for value in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def _with(shown: Shown, chosen: Mapping[str, str]) -> Shown:
    return Shown(
        begin_s=shown.begin_s,
        end_s=shown.end_s,
        scrape_s=shown.scrape_s,
        most_points=shown.most_points,
        chosen=dict(chosen),
    )


def _in_order(values: list[str], sort: int) -> list[str]:
    # 1 and 2 by the alphabet, 3 and 4 by number; the even ones from the end.
    if sort in (3, 4):
        values = sorted(values, key=lambda it: [int(n) for n in re.findall(r"\d+", it)])
    return values[::-1] if sort in (2, 4, 6) else values


def _seconds(length_s: float) -> str:
    return f"{max(round(length_s), 1)}s"
