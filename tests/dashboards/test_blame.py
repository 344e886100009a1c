"""The table "Cause" names the rank that is the cause, the worst first."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from distdbg.diagnose.finding import FINDING_KINDS

pytestmark = pytest.mark.prometheus
RUN = "20260102-030405-1"
WAITED_FOR = "its process is gone, and others waited for it"
GONE = "its process is gone"
ABSENT = "has not called what others wait in"
LATE = "comes late, and others wait for it"


def series(name: str, value: float, **labels: object) -> dict[str, str]:
    said = ",".join(f'{key}="{label}"' for key, label in {"run": RUN, **labels}.items())
    return {"series": f"{name}{{{said}}}", "values": f"{value}x20"}


def rank(
    number: int, host: str, *, up: int = 1, since: float = 0.01, in_flight: int = 1, seq: int = 10
) -> list[dict[str, str]]:
    where = {"rank": number, "host": host, "instance": f"{host}:9400"}
    return [
        series("distdbg_rank_up", up, **where),
        series("distdbg_rank_since_progress_seconds", since, **where),
        series("distdbg_rank_ops_in_flight", in_flight, **where),
        series("distdbg_rank_seq", seq, group="world", **where),
        series("distdbg_rank_seq", 1, group="other", **where),
    ]


def check(query: str, inputs: list[dict[str, str]], wanted: list[Any], folder: Path) -> None:
    """Has Prometheus work out `query`, which finds the rows that are wanted, in any order."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    test = {
        "interval": "15s",
        "input_series": inputs,
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": "2m",
                "exp_samples": [
                    {
                        "labels": f'{{rank="{rank}",host="{host}",why="{why}"{"".join(more)}}}',
                        "value": value,
                    }
                    for rank, host, why, value, *more in wanted
                ],
            }
        ],
    }
    file = folder / "test.json"
    file.write_text(json.dumps({"tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def blame(queries: list[Any]) -> str:
    [found] = [query.expression for query in queries if query.place == "Cause"]
    return str(found)


def test_nobody_is_to_blame_in_a_job_that_moves(blame: str, tmp_path: Path) -> None:
    inputs = [*rank(0, "a"), *rank(1, "a", in_flight=0, seq=9)]
    check(blame, [*inputs, series("distdbg_dead_ranks", 0, host="a")], [], tmp_path)


def test_a_dead_rank_comes_before_its_victims(blame: str, tmp_path: Path) -> None:
    inputs = [*rank(0, "a", since=30), *rank(1, "b", up=0, since=0, in_flight=0, seq=9)]
    dead = [series("distdbg_dead_ranks", 0, host="a"), series("distdbg_dead_ranks", 1, host="b")]
    check(blame, [*inputs, *dead], [(1, "b", WAITED_FOR, 4)], tmp_path)


def test_of_a_job_that_is_gone_as_a_whole_who_was_behind_comes_first(
    blame: str, tmp_path: Path
) -> None:
    over: dict[str, Any] = {"up": 0, "since": 0, "in_flight": 0}
    inputs = [*rank(0, "a", **over), *rank(1, "a", **over, seq=9), *rank(2, "a", **over)]
    wanted = [(1, "a", WAITED_FOR, 4), (0, "a", GONE, 3), (2, "a", GONE, 3)]
    check(blame, [*inputs, series("distdbg_dead_ranks", 3, host="a")], wanted, tmp_path)


def test_a_rank_that_ended_well_is_not_gone(blame: str, tmp_path: Path) -> None:
    inputs = [*rank(0, "a"), *rank(1, "b", up=0, since=0, in_flight=0)]
    dead = [series("distdbg_dead_ranks", 0, host="a"), series("distdbg_dead_ranks", 0, host="b")]
    check(blame, [*inputs, *dead], [], tmp_path)


def test_who_has_not_come_is_to_blame_and_not_those_who_wait(blame: str, tmp_path: Path) -> None:
    inputs = [
        *rank(0, "a", since=40),
        *rank(1, "a", since=41),
        *rank(2, "b", since=45, in_flight=0, seq=9),
    ]
    check(blame, inputs, [(2, "b", ABSENT, 2)], tmp_path)


def test_a_rank_that_comes_late_is_named_below(blame: str, tmp_path: Path) -> None:
    late = [
        {"series": f'distdbg:rank_late_share:costly{{run="{RUN}",rank="{n}"}}', "values": f"{v}x20"}
        for n, v in ((1, 0.75),)
    ]
    inputs = [*rank(0, "a"), *rank(1, "a"), *rank(2, "b", since=45, in_flight=0, seq=9)]
    wanted = [(2, "b", ABSENT, 2), (1, "a", LATE, 0.75)]
    check(blame, [*inputs, *late], wanted, tmp_path)


def test_another_job_has_nothing_to_do_with_it(blame: str, tmp_path: Path) -> None:
    other = [
        {"series": one["series"].replace(RUN, "another"), "values": one["values"]}
        for one in rank(0, "a", since=99, in_flight=0, seq=1) + rank(1, "a", seq=900)
    ]
    check(blame, [*rank(0, "a"), *rank(1, "a"), *other], [], tmp_path)


def test_what_the_diagnosis_says_takes_the_place_of_guesses(blame: str, tmp_path: Path) -> None:
    inputs = [*rank(0, "a", since=30), *rank(1, "b", up=0, since=0, in_flight=0, seq=9)]
    dead = [series("distdbg_dead_ranks", 1, host="b")]
    said = series("distdbg_rank_blamed", 1, rank=0, kind="stuck rank", host="first")
    check(blame, [*inputs, *dead, said], [(0, "a", "stuck rank", 5)], tmp_path)


def test_the_cause_has_its_line_and_the_ranks_that_wait_for_it(blame: str, tmp_path: Path) -> None:
    inputs = [*rank(0, "a", since=30, in_flight=0, seq=9), *rank(1, "b", since=30)]
    where = {"site": "slp.py:6 (load)", "waiting": "1"}
    said = series("distdbg_rank_blamed", 1, rank=0, kind="stuck rank", host="a", **where)
    more = ',site="slp.py:6 (load)",waiting="1"'
    check(blame, [*inputs, said], [(0, "a", "stuck rank", 5, more)], tmp_path)


def test_each_kind_of_finding_is_said_in_a_sentence(boards: dict[str, Any]) -> None:
    [panel] = [
        panel for panel in boards["distdbg-overview.json"]["panels"] if panel["title"] == "Cause"
    ]
    [words] = [
        one["value"][0]["options"]
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == "Why"
        for one in override["properties"]
        if one["id"] == "mappings"
    ]
    for kind in FINDING_KINDS:
        assert words[kind.value]["text"].startswith(f"{kind.value}: "), kind
    for guess in (WAITED_FOR, GONE, ABSENT, LATE):
        assert words[guess]["text"] == guess


def test_the_dashboards_call_late_whom_the_alert_calls_so(boards: dict[str, Any]) -> None:
    rules = Path(__file__).parents[2] / "dashboards" / "prometheus" / "rules"
    [share] = re.findall(
        r"rank_late_share:ratio > ([\d.]+)", (rules / "recording.yaml").read_text()
    )
    assert "distdbg:rank_late_share:costly" in (rules / "alerts.yaml").read_text()
    for name, column in (("overview", "Late"), ("ranks", "Late"), ("stragglers", "Late")):
        steps = [
            one["value"]["steps"][1]["value"]
            for panel in boards[f"distdbg-{name}.json"]["panels"]
            for override in panel.get("fieldConfig", {}).get("overrides", ())
            if override["matcher"]["options"] == column
            for one in override["properties"]
            if one["id"] == "thresholds"
        ]
        assert steps == [float(share)], name
