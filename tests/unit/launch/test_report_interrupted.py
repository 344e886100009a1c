"""How a job is told that a signal, or its launcher, has ended."""

from __future__ import annotations

from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.report import JobOutcome, report
from tests.unit.launch.report_facts import (
    FOLDER,
    KNOT,
    aborted,
    code,
    ended,
    error,
    golden,
    reported,
    terminated,
)


def test_ctrl_c_is_no_failure_of_a_rank() -> None:
    evidence = [terminated(rank) for rank in range(4)]
    golden(
        reported(*evidence, interrupted=2),
        [
            "STOPPED: interrupted by Ctrl-C (SIGINT); 4 ranks were terminated",
            f"  run folder: {FOLDER}",
        ],
    )
    assert code(*evidence, interrupted=2) == 130
    assert "by SIGTERM; 1 rank was terminated" in reported(terminated(0), interrupted=15)
    asked = reported(terminated(0), interrupted=15, stopped_by="anna")
    assert "stopped by anna (distdbg stop); 1 rank was terminated" in asked
    assert "SIGTERM" not in asked


def test_a_signal_that_ends_a_hung_job_is_not_the_cause() -> None:
    hang = "ranks 0-1 waited 99 s for rank 2, asleep in load() at slp.py:7"
    evidence = [terminated(rank) for rank in range(3)]
    golden(
        reported(*evidence, interrupted=15, hang=hang, analyze="x", doing=["rank 2: ..."]),
        [
            f"HUNG: {hang}",
            "  interrupted by SIGTERM; 3 ranks were terminated",
            f"  run folder: {FOLDER}",
            "  next: distdbg analyze x",
        ],
    )
    assert code(*evidence, interrupted=15, hang=hang) == 143


def test_what_failed_before_an_interruption_is_told_too() -> None:
    text = reported(LostRankEvidence(end=ended(1, 0.5, exit_code=3)), terminated(0), interrupted=2)
    assert text.splitlines()[1] == "  before, rank 1 exited with code 3"


def test_a_signal_that_comes_after_a_proven_failure_is_not_the_headline() -> None:
    mismatch = error("MismatchError: all_reduce #7 on group 'dp' differs between ranks: shapes")
    differing = [LostRankEvidence(end=ended(rank, exit_code=1), error=mismatch) for rank in (0, 1)]
    text = reported(*differing, terminated(2), interrupted=15)
    assert (
        text.splitlines()[0]
        == "MISMATCH: all_reduce #7 on group 'dp' differs between ranks: shapes"
    )
    assert "\n  interrupted by SIGTERM; 1 rank was terminated\n" in text
    assert code(*differing, terminated(2), interrupted=15) == 143
    outcome = JobOutcome(
        evidence=[aborted(0), aborted(1)], verdict=KNOT, interrupted=2, hang="ranks 0-1 waited 9 s"
    )
    assert report(outcome).startswith("DEADLOCK: ")


def test_a_reason_of_the_launcher_is_told_when_no_rank_failed() -> None:
    text = reported(terminated(0), terminated(1), because="host n04 is gone")
    assert text.splitlines()[0] == "FAILED: host n04 is gone; 2 ranks were terminated"
    assert code(terminated(0), because="host n04 is gone") == 1


def test_what_ranks_had_waited_for_is_in_the_first_line_of_a_job_that_was_stopped() -> None:
    waited = "rank 2 had waited 27 s in barrier #4 (job.py:39) for rank 0, asleep in acquire() at lock.py:15"
    evidence = [terminated(rank) for rank in range(3)]
    lines = report(
        JobOutcome(evidence=evidence, interrupted=15, waited=waited, doing=["rank 0: asleep"])
    ).splitlines()
    assert lines[:2] == [
        f"STOPPED: interrupted by SIGTERM after {waited}",
        "  3 ranks were terminated",
    ]
    assert not any("asleep" in line for line in lines[1:])
