"""Jobs whose ranks are all killed at once: none of them is the cause."""

from __future__ import annotations

import pytest

from distdbg.launch.diagnosis import Diagnosis
from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.final_report import struck_at_once
from distdbg.launch.report import JobOutcome, exit_code, report
from distdbg.record.ends import RankEnd
from tests.unit.launch.report_facts import ended

HANG = "ranks 0-1 waited 40 s for rank 2, asleep in load() at slp.py:6"


def killed(*asked: bool, number: int = 9, apart_ms: float = 1.0) -> list[RankEnd]:
    return [
        ended(
            rank,
            cause="signal",
            signal=number,
            was_asked=was_asked,
            ended_ns=round(rank * apart_ms * 1e6),
        )
        for rank, was_asked in enumerate(asked)
    ]


@pytest.mark.parametrize(
    ("ends", "number"),
    [
        pytest.param(killed(False, False, False), 9, id="all"),
        pytest.param(
            killed(False, False, True, number=15), 15, id="the launcher began to end them"
        ),
        pytest.param(killed(False, False, False, number=10), 10, id="by a notice"),
        pytest.param(killed(False, True, True, number=15), None, id="one and then by the launcher"),
        pytest.param(killed(False, False, False, apart_ms=600), None, id="one after the other"),
        pytest.param(killed(False, False), None, id="not all"),
        pytest.param(killed(False, False, False, number=11), None, id="a crash of each"),
        pytest.param(
            [*killed(False, False), ended(2, cause="exited", exit_code=1)], None, id="one failed"
        ),
        pytest.param([*killed(False, False), *killed(False, number=15)], None, id="other signals"),
    ],
)
def test_all_ranks_of_one_signal_within_a_second_are_one_blow(
    ends: list[RankEnd], number: int | None
) -> None:
    assert struck_at_once(ends, 3) == number


def test_one_rank_alone_is_a_death() -> None:
    assert struck_at_once(killed(False), 1) is None


def test_the_report_says_what_the_job_hung_in_and_who_is_no_cause() -> None:
    evidence = [LostRankEvidence(end=one) for one in killed(False, False, False)]
    known = Diagnosis(kind="stuck rank", what=HANG, ranks=(2,), advice="see why it sleeps")
    outcome = JobOutcome(evidence=evidence, struck=9, hang=HANG, diagnosis=known)
    lines = report(outcome).splitlines()
    assert lines[:2] == [
        f"HUNG: {HANG}",
        "  all 3 ranks were killed by SIGKILL at once, from outside",
    ]
    assert "  hint: see why it sleeps" in lines
    assert not any(line.startswith(("RANK DIED", "  before,")) for line in lines)
    assert exit_code(outcome) == 137
    stopped = report(JobOutcome(evidence=evidence, struck=9, waited="rank 0 had waited 2 s"))
    assert stopped.startswith(
        "STOPPED: all 3 ranks were killed by SIGKILL at once, from outside after rank 0 had waited 2 s\n"
    )
