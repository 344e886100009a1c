"""The made run is what it says it is: readable, whole, and with the fault that was planted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.analyze import main
from benchmarks.made_run import FAULTS, make_run
from distdbg.diagnose.finding import FindingKind, Severity
from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.verdict import diagnose
from distdbg.record.folders import record_name
from distdbg.record.reader import read_record

ROOTS = {
    "mismatch": FindingKind.MISMATCH,
    "missing": FindingKind.MISSING_RANK,
    "dead": FindingKind.DEAD_RANK,
    "stuck": FindingKind.STUCK_RANK,
    "deadlock": FindingKind.DEADLOCK,
    "straggler": FindingKind.STRAGGLER,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_nothing_else(tmp_path: Path, fault: str) -> None:
    make_run(tmp_path, ranks=8, ops=40, fault=fault, at=5)
    session = load_run(tmp_path)
    assert len(session.ranks) == 8
    assert session.ranks[5].lost.get("gaps", 0) == (fault == "damaged")
    verdict = diagnose(session)
    wanted = ROOTS.get(fault)
    if wanted is None:
        assert not verdict.has_faults
        return
    assert verdict.root is not None
    assert verdict.root.kind is wanted
    assert 5 in verdict.root.ranks
    others = [f.kind for f in verdict.findings[1:] if f.severity is not Severity.NOTE]
    assert others == []


def test_a_made_record_is_a_record(tmp_path: Path) -> None:
    make_run(tmp_path, ranks=2, ops=10)
    record = read_record(tmp_path / record_name(1))
    assert not record.gaps
    assert [op.number for op in record.ops] == list(range(1, 11))
    assert record.ops[-1].ended_ns is not None


def test_the_command_prints_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ranks", "4", "--ops", "8", "--faults", "dead", "--at", "2"]) == 0
    said = capsys.readouterr().out
    assert "met" in said
    assert "rank 2 was killed by SIGKILL" in said
