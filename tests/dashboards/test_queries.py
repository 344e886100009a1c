"""Queries ask for what exists: families of metrics, recorded series, and the labels that they have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from distdbg.export.metrics.families import BY_NAME, MetricType

CHECKOUT = Path(__file__).resolve().parents[2]
RULES = CHECKOUT / "dashboards" / "prometheus" / "rules" / "recording.yaml"

#: Recorded series that dashboards may ask for, with their labels.
RECORDED = {
    "distdbg:bus_bandwidth:bytes_per_second": {"run", "kind", "group"},
    "distdbg:ops:rate": {"run", "kind", "group"},
    "distdbg:bytes:rate": {"run", "kind", "group"},
    "distdbg:op_duration_seconds:p50": {"run", "kind", "group"},
    "distdbg:op_duration_seconds:p99": {"run", "kind", "group"},
    "distdbg:late_arrival_seconds:p99": {"run", "kind", "group"},
    "distdbg:rank_late_share:ratio": {"run", "rank"},
    "distdbg:rank_late_share:costly": {"run", "rank"},
    "distdbg:rank_late_peer:ratio": {"run", "rank"},
    "distdbg:rank_transfer:ratio": {"run", "rank"},
    "distdbg:agent_cpu:ratio": {"run", "host"},
}
#: Of each sample, by its agent and by Prometheus.
EVERYWHERE = {"run", "host", "job", "instance"}
#: Labels that an expression makes itself.
MADE = {"why"}
SELECTOR = re.compile(r"(distdbg[\w:]*)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|on|group_left|group_right) \(([^)]*)\)")


def labels_of(name: str) -> set[str] | None:
    if name in RECORDED:
        return RECORDED[name]
    if name in BY_NAME:
        family = BY_NAME[name]
        return None if family.type is MetricType.HISTOGRAM else EVERYWHERE | set(family.labels)
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    if base in BY_NAME and BY_NAME[base].type is MetricType.HISTOGRAM:
        more = {"le"} if name.endswith("_bucket") else set()
        return EVERYWHERE | set(BY_NAME[base].labels) | more
    return None


def test_every_series_exists_and_has_the_labels_that_are_asked_for(queries: list[Any]) -> None:
    wrong = []
    for query in queries:
        for name, matchers in SELECTOR.findall(query.text):
            known = labels_of(name)
            if known is None:
                wrong.append((query.board, query.place, name))
            else:
                asked = set(re.findall(r"(\w+)\s*[=!]", re.sub(r'"[^"]*"', '""', matchers)))
                wrong += [(query.board, query.place, name, one) for one in asked - known]
    assert not wrong


def test_every_label_that_is_grouped_by_is_one_of_the_series(queries: list[Any]) -> None:
    wrong = []
    for query in queries:
        known = set(MADE)
        for name, _ in SELECTOR.findall(query.text):
            known |= labels_of(name) or set()
        for labels in GROUPING.findall(query.text):
            asked = {label.strip() for label in labels.split(",")} - {""}
            wrong += [(query.board, query.place, one) for one in asked - known]
    assert not wrong


def test_every_query_is_about_one_run(queries: list[Any]) -> None:
    unbound = [
        (query.board, query.place, name)
        for query in queries
        for name, matchers in SELECTOR.findall(query.text)
        if 'run="$run"' not in matchers and query.place != "run"
    ]
    assert not unbound


def test_every_family_is_in_some_panel_or_in_a_rule_that_is(queries: list[Any]) -> None:
    text = " ".join(query.text for query in queries)
    if RULES.exists():
        text += RULES.read_text()
        unseen = [name for name in BY_NAME if not re.search(rf"\b{name}\b|\b{name}_bucket\b", text)]
        assert not unseen


def test_every_recorded_series_is_recorded() -> None:
    if RULES.exists():
        recorded = set(re.findall(r"^\s*- record: (\S+)$", RULES.read_text(), re.MULTILINE))
        assert set(RECORDED) <= recorded


@pytest.mark.prometheus
def test_prometheus_reads_every_query(queries: list[Any], tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    rules = [
        {"record": f"query:{number}", "expr": query.expression}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "queries.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_query_holds_a_variable_that_nobody_fills_in(queries: list[Any]) -> None:
    # "$1" is what a regular expression has found.
    assert not [(q.board, q.place) for q in queries if "$" in q.expression.replace('"$1"', "")]
