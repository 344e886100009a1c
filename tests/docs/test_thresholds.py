"""The ages that pages and alert rules quote are those of the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distdbg.record.rank_state import RankState
from distdbg.record.thresholds import CPU_S, ELSE, FACTOR, TABLE, AgeThresholds

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "how-a-verdict-is-found.md"
RUNBOOK = ROOT / "docs" / "runbooks" / "stuck-rank.md"
RULES = ROOT / "dashboards" / "prometheus" / "rules" / "alerts.yaml"


def cells(page: Path, state: str) -> list[str]:
    """The cells of a state's line in the first table that has one."""
    for line in page.read_text().splitlines():
        if line.startswith(f"| {state} |"):
            return [cell.strip() for cell in line.strip("|").split("|")]
    raise AssertionError(f"{page.name} has no line for {state}")


def say(ns: int | None) -> str:
    return "" if ns is None else "at once" if ns == 0 else f"{ns // 10**9} s"


@pytest.mark.parametrize("state", [*TABLE, None], ids=str)
def test_the_page_of_verdicts_has_the_table(state: RankState | None) -> None:
    measure: AgeThresholds = ELSE if state is None else TABLE[state]
    shown = cells(PAGE, "anything else" if state is None else f"`{state}`")
    assert shown[2:] == [say(measure.warning_ns), say(measure.error_ns)]
    assert shown[1] == ("" if measure.error_ns == 0 else "at once")


@pytest.mark.parametrize("state", TABLE, ids=str)
def test_the_runbook_has_the_ages(state: RankState) -> None:
    measure = TABLE[state]
    age_ns = measure.warning_ns if measure.error_ns is None else measure.error_ns
    assert cells(RUNBOOK, f"`{state}`")[1] == say(age_ns)


@pytest.mark.parametrize("page", [PAGE, RUNBOOK], ids=lambda page: page.name)
def test_the_pages_have_the_factor(page: Path) -> None:
    assert f"before {FACTOR} times the longest gap" in page.read_text()
    if page is PAGE:
        assert f"used its CPU for {CPU_S:.0f} s" in page.read_text()


def test_the_alert_names_the_states_of_the_table_and_no_other_ages() -> None:
    rules = RULES.read_text()
    rule = rules[rules.index("alert: DistdbgStuckRank") : rules.index("alert: DistdbgWrongNumbers")]
    (states,) = re.findall(r'state=~\\"([^"\\]+)\\"', rule)
    assert states.split("|") == [str(state) for state in TABLE]
    assert "stuck rank" in rule  # a finding of that kind is as old as the table asks for
