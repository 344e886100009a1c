"""The recording and alerting rules, by promtool and by what they have to name."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from distdbg.diagnose.counting import late_shares
from distdbg.export.metrics.families import BY_NAME, FAMILIES, MetricType
from tests.support.prometheus import made_quick

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dashboards" / "prometheus"
RULES = sorted((FOLDER / "rules").glob("*.yaml"))
CASES = sorted((FOLDER / "tests").glob("*.yaml"))
PAGES = ROOT / "docs" / "runbooks"
RUNBOOK = (
    '{{ or $externalLabels.distdbg_docs "https://distdbg.readthedocs.io/en/latest" }}/runbooks/'
)


def promtool(*words: str | Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout


def texts() -> str:
    return "".join(path.read_text() for path in RULES)


def alerts() -> dict[str, str]:
    """By name, what is written of each alert."""
    parts = re.split(r"^ +- (?:alert|record): ", texts(), flags=re.MULTILINE)[1:]
    named = {part.split("\n", 1)[0]: part for part in parts}
    return {name: text for name, text in named.items() if ":" not in name}


def without_comments(text: str) -> str:
    return re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", *RULES)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_what_the_rules_come_to(case: Path) -> None:
    promtool("test", "rules", case)


@pytest.mark.parametrize("size", [2, 3, 4, 8, 16])
def test_shares_of_late_arrivals_are_those_of_the_diagnosis(size: int, tmp_path: Path) -> None:
    random = Random(size)
    waits = {rank: random.randrange(200) * 15_000_000 for rank in range(size)}
    shares = dict(late_shares({rank: (150, ns) for rank, ns in waits.items()}))
    series, samples = [], []
    for rank, ns in waits.items():
        labels = f'run="a", host="n", rank="{rank}"'
        wait = f'distdbg_rank_wait_seconds_total{{{labels}, cause="late_peer"}}'
        seq = f'distdbg_rank_seq{{{labels}, group="world"}}'
        series += [{"series": wait, "values": f"0+{ns / 1e9}x20"}]
        series += [{"series": seq, "values": "0+150x20"}]
        # Below a hundredth the diagnosis says nothing.
        share = round(1000 * shares[rank]) if rank in shares else 0
        samples.append({"labels": f'{{run="a", rank="{rank}"}}', "value": share})
    share = "distdbg:rank_late_share:ratio"
    asked = f"round(1000 * ({share} >= 0.00995)) or 0 * {share}"
    case = {
        "rule_files": [str(FOLDER / "rules" / "recording.yaml")],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": series,
                "promql_expr_test": [{"expr": asked, "eval_time": "4m", "exp_samples": samples}],
            }
        ],
    }
    path = tmp_path / "case.yaml"
    path.write_text(json.dumps(case))  # which is YAML
    promtool("test", "rules", path)


def test_each_alert_says_how_bad_it_is_and_has_a_page() -> None:
    assert alerts()
    for name, text in alerts().items():
        assert name.startswith("Distdbg")
        assert re.search(r"severity: (critical|warning)\n", text), name
        assert "summary:" in text, name
        assert "$labels.run" in re.search(r"summary:(.*?)description:", text, re.DOTALL)[1], name
        page = re.sub(r"(?<!^)([A-Z])", r"-\1", name.removeprefix("Distdbg")).lower()
        assert f"runbook_url: '{RUNBOOK}{page}.html'" in text, name
        assert (PAGES / f"{page}.md").read_text().startswith(f"# {name}\n"), name


def test_each_page_is_about_an_alert() -> None:
    titles = {path.read_text().split("\n", 1)[0] for path in PAGES.glob("*.md")}
    assert titles - {"# Runbooks"} == {f"# {name}" for name in alerts()}


def test_each_alert_is_seen_to_fire_and_each_rule_is_asked_for() -> None:
    cases = without_comments("".join(path.read_text() for path in CASES))
    for name in alerts():
        assert name in cases, name
    for name in re.findall(r"- record: (\S+)", texts()):
        text = cases + without_comments(texts()).replace(f"- record: {name}", "")
        assert name in text, f"nobody uses {name}"


def test_the_rules_read_metrics_and_labels_that_there_are() -> None:
    recorded = set(re.findall(r"- record: (\S+)", texts()))
    known = {"host", "run", "le", "job"} | {label for one in FAMILIES for label in one.labels}
    histograms = {one.name for one in FAMILIES if one.type is MetricType.HISTOGRAM}
    for text in map(
        without_comments, re.split(r"^ +- (?:alert|record): ", texts(), flags=re.MULTILINE)
    ):
        for name in re.findall(r"\bdistdbg_[a-z0-9_]+\b", text.replace("distdbg_docs", "")):
            base = (
                name.removesuffix("_bucket") if name.removesuffix("_bucket") in histograms else name
            )
            assert base in BY_NAME, name
        for name in re.findall(r"\bdistdbg:[a-z0-9_:]+\b", text):
            assert name in recorded, name
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", text):
            assert set(labels.split(", ")) <= known, labels


def test_what_is_made_quick_keeps_its_form() -> None:
    text = "for: 5m\nexpr: rate(x[2m] offset 10m) > 20\nscrape_interval: 5s"
    quick = "for: 30s\nexpr: rate(x[12s] offset 60s) > 20\nscrape_interval: 1s"
    assert made_quick(text, 10) == quick
