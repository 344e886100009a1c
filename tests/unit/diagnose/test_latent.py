"""Findings of latent errors that ranks wrote down."""

from __future__ import annotations

from distdbg.diagnose.find import latent, leaks
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit
from tests.support.session_builder import SessionBuilder


def find(session: Session) -> list[Finding]:
    return latent.find(session, match(session), {})


def tell(
    build: SessionBuilder, rank: int, *, line: int = 9, times: int = 1, at_s: float = 1
) -> None:
    build.found(
        rank, "LeakedWork", "the Work of all_reduce was dropped", at_s=at_s,
        kind="all_reduce", group="world", ranks=(rank,), hint="keep the Work and call wait() on it",
        how=f"{times} times" if times > 1 else "",
        details=(
            f"rank {rank} started it at train.py:{line} (step)",
            f"rank {rank} dropped its Work at train.py:{line + 1} (step)",
        ),
    )  # fmt: skip


def test_one_line_of_several_ranks_is_one_finding_with_the_last_count() -> None:
    build = SessionBuilder(world_size=3)
    for rank in (0, 2):
        tell(build, rank)
        tell(build, rank, times=5 + rank, at_s=9)

    (finding,) = find(build.session)

    assert finding.kind is FindingKind.LEAKED_WORK
    assert finding.severity is Severity.WARNING
    assert finding.ranks == (0, 2)
    assert finding.what == (
        "ranks 0,2 never waited for all_reduce on group 'world' at train.py:9 (step), 7 times"
    )
    assert [fact.site for fact in finding.evidence[:2]] == [
        "train.py:9 (step)",
        "train.py:10 (step)",
    ]
    assert finding.numbers == {"times": 7.0, "ranks": 2.0}


def test_two_lines_are_two_findings() -> None:
    build = SessionBuilder(world_size=1)
    tell(build, 0, line=9)
    tell(build, 0, line=20, at_s=2)

    assert [finding.what[-18:] for finding in find(build.session)] == [
        " train.py:9 (step)",
        "train.py:20 (step)",
    ]


def test_an_op_that_the_rank_told_itself_is_not_told_twice() -> None:
    build = SessionBuilder(world_size=1)
    build.op(0, "all_reduce", at_s=0.5, is_async=True, site="/job/train.py:9 (step)")
    build.exit(0, Exit.RETURNED, at_s=2.0)
    assert len(leaks.find(build.session, match(build.session), {})) == 1

    tell(build, 0)

    assert leaks.find(build.session, match(build.session), {}) == []


def test_it_is_the_verdict_of_a_job_that_has_nothing_worse() -> None:
    build = SessionBuilder(world_size=1)
    tell(build, 0)

    verdict = diagnose(build.session)

    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.LEAKED_WORK
    assert verdict.has_faults


def test_words_that_are_damaged_are_no_error() -> None:
    build = SessionBuilder(world_size=1)
    build.found(0, "LeakedGroup", "", at_s=1, how="many times", details=())

    (finding,) = find(build.session)

    assert finding.numbers["times"] == 1.0
