"""Each class of fault, planted in a job of 64 ranks, is what the verdict says."""

from __future__ import annotations

import pytest

from distdbg.diagnose.finding import Severity
from distdbg.diagnose.verdict import diagnose
from tests.support.planted import FAULTS, plant

PLANTED = 64 // 2 + 3


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "healthy"])
def test_a_planted_fault_is_found(fault: str) -> None:
    verdict = diagnose(plant(64, 200, fault))

    first = verdict.findings[0]
    assert first.kind.value == fault
    assert PLANTED in (*first.ranks, *first.victims)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_where_nothing_was_planted(seed: int) -> None:
    verdict = diagnose(plant(64, 200, "healthy", seed=seed))

    assert verdict.findings == ()


def test_what_is_found_beside_a_fault_is_at_most_a_note() -> None:
    for fault in FAULTS:
        verdict = diagnose(plant(64, 200, fault))
        beside = verdict.findings[1:]
        assert all(finding.severity is Severity.NOTE for finding in beside), fault
