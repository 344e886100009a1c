"""What dashboards and rules ask is asked of a Prometheus that scrapes live jobs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.prometheus import Prometheus, prometheus

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BOARDS = sorted((ROOT / "dashboards" / "grafana" / "dashboards").glob("*.json"))
RULES = sorted((ROOT / "dashboards" / "prometheus" / "rules").glob("*.yaml"))
PATIENCE_S = 120.0
#: Series that are there only where Prometheus takes native histograms.
NATIVE = {"distdbg_op_duration_seconds", "distdbg_op_late_arrival_seconds"}


def shown(server: Prometheus) -> Any:
    from dashboards.draw.fill import Shown

    now = time.time()
    return Shown(begin_s=now - 30, end_s=now, scrape_s=1.0)


def asks(board: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    from dashboards.draw.ask import panels, targets

    return [(panel["title"], target) for panel in panels(board) for target in targets(panel)]


def metrics(address: str) -> bytes:
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        body: bytes = answer.read()
        return body


def rules(server: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in server.api("rules")["groups"] for rule in group["rules"]]


def test_one_entry_finds_all_jobs_and_their_hosts(server: Prometheus, jobs: Any) -> None:
    for run in jobs.runs.values():
        server.until(f'up{{job="distdbg", run="{run}", host!=""}} == 1', PATIENCE_S)


def test_promtool_accepts_what_a_live_agent_serves(jobs: Any) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=metrics(jobs.address),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()


def test_promtool_accepts_the_configuration() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    config = ROOT / "dashboards" / "prometheus" / "prometheus.yml"
    done = subprocess.run(
        [promtool, "check", "config", config],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_query_of_every_panel_returns_data(path: Path, server: Prometheus, jobs: Any) -> None:
    from dashboards.draw.ask import ask
    from dashboards.draw.fill import choose

    board = json.loads(path.read_text())
    waiting = asks(board)
    assert waiting
    deadline = time.monotonic() + PATIENCE_S
    while waiting and time.monotonic() < deadline:
        # What one job has nothing of, another one has.
        chosen = [choose(board, server, shown(server), {"run": it}) for it in jobs.runs.values()]
        for one in list(waiting):
            if any(ask(one[1], server, it) for it in chosen):
                waiting.remove(one)
        time.sleep(0.2)  # the next scrape is not announced
    assert not waiting, [(title, target["expr"]) for title, target in waiting]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_variable_has_values_and_every_mark_can_be_asked_for(
    path: Path, server: Prometheus, jobs: Any
) -> None:
    from dashboards.draw.fill import choose, values_of

    board = json.loads(path.read_text())
    server.until(f'distdbg_rank_seq{{run="{jobs.runs["late"]}"}}', PATIENCE_S)
    chosen = choose(board, server, shown(server), {"run": jobs.runs["late"]})
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            assert values_of(variable, server, chosen), variable["name"]
    for mark in board["annotations"]["list"]:
        if "expr" in mark:
            server.query(chosen.fill(mark["expr"]))


def test_every_recording_rule_has_data(server: Prometheus, jobs: Any) -> None:
    names = [name for path in RULES for name in re.findall(r"- record: (\S+)", path.read_text())]
    may_be_empty = {"distdbg:recording_lost:increase10m"}
    for name in set(names) - may_be_empty:
        server.until(name, PATIENCE_S)
    assert [rule for rule in rules(server) if rule.get("lastError")] == []


def test_every_series_that_a_rule_reads_is_there(server: Prometheus, jobs: Any) -> None:
    server.until("distdbg:rank_late_share:ratio", PATIENCE_S)
    text = re.sub(r"#.*", "", "".join(path.read_text() for path in RULES))
    found = set(re.findall(r"\bdistdbg_[a-z0-9_]+\b", text)) - {"distdbg_docs"} - NATIVE
    assert len(found) > 15
    assert [name for name in sorted(found) if not server.query(name)] == []


def test_the_planted_troubles_are_told_by_name(server: Prometheus, jobs: Any) -> None:
    late, dies, again = (jobs.runs[name] for name in ("late", "dies", "restarts"))
    firing = 'ALERTS{{alertname="Distdbg{}", alertstate="firing", run="{}"}}'.format
    server.until(firing("Straggler", late), PATIENCE_S)
    server.until(firing("Mismatch", late), PATIENCE_S)
    server.until(firing("DeadRank", dies), PATIENCE_S)
    server.until(firing("NoProgress", dies), PATIENCE_S)
    server.until(firing("ExportFailing", late), PATIENCE_S)
    server.until(f'distdbg_restarts_total{{run="{again}"}} == 1', PATIENCE_S)
    alerts = {
        (it["labels"]["alertname"].removeprefix("Distdbg"), it["labels"]["run"]): it
        for it in server.api("alerts")["alerts"]
        if it["state"] == "firing"
    }
    straggler = alerts["Straggler", late]
    assert straggler["labels"]["rank"] == "3"
    assert f"Rank 3 of run {late} holds the others up" in straggler["annotations"]["summary"]
    assert "rank 1 on" in alerts["DeadRank", dies]["annotations"]["summary"]
    expected = {
        ("Straggler", late), ("Mismatch", late), ("DeadRank", dies), ("NoProgress", dies),
        ("DeadRank", again), ("ExportFailing", late),
    }  # fmt: skip
    assert alerts.keys() <= expected


def test_rules_read_native_histograms_where_prometheus_takes_them(
    jobs: Any, server: Prometheus, tmp_path: Path
) -> None:
    config = f"""\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: distdbg, static_configs: [{{targets: ["{jobs.address[7:]}"]}}]}}]
"""
    of_rule = next(
        rule["query"] for rule in rules(server) if rule["name"] == "distdbg:op_duration_seconds:p99"
    )
    with prometheus(tmp_path, config, ["--enable-feature=native-histograms"]) as native:
        native.until("count(distdbg_op_duration_seconds)", PATIENCE_S)
        assert not native.query("distdbg_op_duration_seconds_bucket")
        found = native.until(of_rule, PATIENCE_S)
    [p99] = [
        points[0][1]
        for labels, points in found
        if (labels["kind"], labels["group"]) == ("all_reduce", "world")
        and labels["run"] == jobs.runs["late"]
    ]
    # Rank 3 sleeps for 20 ms before each.
    assert 0.015 < p99 < 1


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_dashboard_can_be_drawn(path: Path, server: Prometheus, jobs: Any) -> None:
    from dashboards.draw.fill import choose
    from dashboards.draw.page import page

    server.until("distdbg:rank_late_share:ratio", PATIENCE_S)
    board = json.loads(path.read_text())
    chosen = choose(board, server, shown(server), {"run": jobs.runs["late"]})
    words = {
        it.text for it in ElementTree.fromstring(page(board, server, chosen)).iter() if it.text
    }
    assert words >= {panel["title"] for panel in board["panels"] if panel["type"] != "row"}
