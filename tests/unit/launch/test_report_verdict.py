"""What others have found out goes into the report: the agent's verdict, the records, a person's word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdbg.control.words import AGENT, AbortWords
from distdbg.launch.diagnosis import Diagnosis
from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.last_seen import LastSeen
from distdbg.launch.report import JobOutcome, exit_code, report
from distdbg.record.rank_state import RankState
from tests.unit.launch.report_facts import (
    FOLDER,
    KNOT,
    aborted,
    ended,
    error,
    record,
    reported,
    terminated,
)


def test_the_agents_verdict_is_the_report() -> None:
    outcome = JobOutcome(
        evidence=[aborted(0), aborted(1), aborted(2), terminated(3)],
        run_folder=FOLDER,
        verdict=KNOT,
    )
    assert report(outcome) == (
        f"DEADLOCK: {KNOT.what}\n"
        "  rank 0 waits in recv from rank 1 on group 'world' at train.py:8 (step)\n"
        "  the job was aborted: 3 ranks ended with an error because of it, 1 was terminated\n"
        "  hint: let one side send while the other receives\n"
        f"  run folder: {FOLDER}\n"
    )
    assert exit_code(outcome) == 1


def test_the_launcher_of_another_host_reports_the_same_verdict() -> None:
    outcome = JobOutcome(evidence=[aborted(0), aborted(1)], verdict=KNOT, is_elsewhere=True)
    assert report(outcome) == (
        f"DEADLOCK: {KNOT.what}\n"
        "  rank 0 waits in recv from rank 1 on group 'world' at train.py:8 (step)\n"
        "  the job was aborted: 2 ranks of this host ended with an error because of it\n"
        "  hint: let one side send while the other receives\n"
    )


def test_of_a_rank_that_died_the_launcher_knows_more_than_the_verdict() -> None:
    verdict = replace(KNOT, what="rank 2 was killed by SIGKILL", type="dead rank", ranks=(2,))
    dead = LostRankEvidence(end=ended(2, signal=9))
    reported = report(JobOutcome(evidence=[dead, aborted(0)], verdict=verdict))
    assert reported.startswith("RANK DIED: rank 2 was killed by SIGKILL (host n14, pid 8812)")


@pytest.mark.parametrize(("by", "word"), [("ada", "STOPPED"), (AGENT, "FAILED"), ("", "FAILED")])
def test_a_job_that_a_person_ends_was_stopped(by: str, word: str) -> None:
    text = "JobAborted: the job was aborted by ada: the learning rate was wrong"
    stopped = [
        LostRankEvidence(end=ended(r, exit_code=1), error=error(text, aborted_by=by))
        for r in range(2)
    ]
    assert reported(*stopped).startswith(f"{word}: ranks 0-1 raised {text}\n")


def test_a_rank_that_has_lost_a_thread_is_told_with_it() -> None:
    late = error("OpTimeout: all_gather #77 waited 30.0 s for rank 2", waits_for=(2,))
    broken = record(
        "last op barrier #3 ended 31 s ago", thread_error="thread 'loader' raised OSError: x"
    )
    hung = LostRankEvidence(end=ended(2, signal=15, was_asked=True), record=broken)
    seen = {2: LastSeen("asleep in get() at queue.py:3")}
    lines = reported(
        LostRankEvidence(end=ended(0, exit_code=1), error=late), hung, seen=seen
    ).splitlines()
    assert lines[:2] == [
        "HUNG: rank 2 was asleep in get() at queue.py:3",
        "  its thread 'loader' raised OSError: x",
    ]
    assert any(line.startswith("  hint: see why that thread raised") for line in lines)


def test_a_rank_that_was_stopped_is_to_be_continued() -> None:
    late = error(
        "OpTimeout: barrier #3 waited 8 s for rank 2", waits_for=(2,), hint="raise the limit"
    )
    text = reported(
        LostRankEvidence(end=ended(0, exit_code=1), error=late),
        LostRankEvidence(end=ended(2, signal=15, was_asked=True)),
        seen={2: LastSeen("stopped at a.py:9", RankState.STOPPED)},
    )
    assert "hint: send its process SIGCONT; find out who sent it SIGSTOP" in text


def test_a_mismatch_is_told_by_what_the_records_show() -> None:
    said = "all_reduce #3 on group 'world' differs between ranks: float32[1] on rank 0, float32[9] on rank 1"
    shown = Diagnosis(
        kind="mismatch",
        what="rank 1 skipped all_reduce #3 at a.py:8 (f); it called all_reduce at a.py:9 (f)",
        ranks=(1,),
        evidence=("rank 1 called all_reduce #3 at a.py:9 (f)",),
        advice="see why rank 1 did not make that call",
    )
    differs = [
        LostRankEvidence(
            end=ended(rank, exit_code=1),
            error=error(f"MismatchError: {said}"),
            error_file=f"{FOLDER}/{rank}/error.json",
        )
        for rank in range(2)
    ]
    lines = reported(*differs, diagnosis=shown).splitlines()
    assert lines[0] == f"MISMATCH: {shown.what}"
    assert f"  error file: {FOLDER}/1/error.json" in lines  # of the rank to blame, not of the first
    assert lines[1:3] == [f"  {said}", f"  {shown.evidence[0]}"]
    assert f"  hint: {shown.advice}" in lines
    assert reported(*differs, diagnosis=replace(shown, kind="deadlock")).startswith(
        f"MISMATCH: {said}"
    )


def test_ranks_that_name_each_other_are_told_by_what_the_records_show() -> None:
    """Rank 1 destroyed a group of theirs and went on to a barrier, which rank 0 leaves with its error."""
    shown = Diagnosis(
        kind="missing rank",
        what="rank 1 destroyed the group while rank 0 waited for it in all_reduce #2 on group 'dp'",
        ranks=(1,),
        advice="see whether rank 1 left the loop by the `break` under `if is_done` (line 15)",
        source=("rank 1 at job.py:20 (main): dist.barrier()",),
    )
    ends = [
        LostRankEvidence(
            end=ended(rank, exit_code=1),
            error=error(
                f"RankLeft: {op} cannot complete: rank {1 - rank} left", because_of=(1 - rank,)
            ),
        )
        for rank, op in enumerate(("all_reduce #2", "barrier #1"))
    ]
    lines = reported(*ends, diagnosis=shown).splitlines()
    assert lines[0] == f"MISMATCH: {shown.what}"
    assert f"  hint: {shown.advice}" in lines
    assert f"  {shown.source[0]}" in lines
    other = replace(shown, kind="dead rank")
    assert not reported(*ends, diagnosis=other).startswith(f"MISMATCH: {shown.what}")


def test_values_that_differ_are_told_by_what_the_records_show_and_each_line_once() -> None:
    said = "assert_same on group 'world': blocks of 2,8,4 on rank 0 and of 2,8,6 on rank 1"
    shown = Diagnosis(
        kind="diverged replicas",
        what=said.replace(" and of 2,8,6 on rank 1", " ..."),
        ranks=(1,),
        advice="the arguments at a.py:8 depend on the rank: `x = 1 if rank else 2` (line 7 of a.py)",
    )
    differs = [
        LostRankEvidence(end=ended(rank, exit_code=1), error=error(f"DivergedError: {said}"))
        for rank in range(2)
    ]
    lines = reported(*differs, diagnosis=shown).splitlines()
    assert lines[0] == f"FAILED: {said}"
    assert sum("blocks of 2,8,4" in line for line in lines) == 1
    assert f"  hint: {shown.advice}" in lines


def test_a_rank_that_never_joined_is_told_before_those_that_gave_up() -> None:
    text = "RendezvousError: 3 of 4 ranks joined 'x' within 8.0 s; missing rank 3 (this is rank {})"
    gave_up = [
        LostRankEvidence(
            end=ended(rank, exit_code=1), error=error(text.format(rank), waits_for=(3,))
        )
        for rank in range(3)
    ]
    lines = reported(*gave_up, terminated(3)).splitlines()
    assert lines[0] == "HUNG: rank 3 never joined; ranks 0-2 waited for it"
    assert lines[1] == f"  ranks 0-2 raised {text.format(0)}"
    assert not any("failed as well" in line for line in lines)


def test_a_job_that_was_ended_before_it_began_is_not_to_be_analyzed() -> None:
    text = reported(interrupted=2, analyze="RUN")
    assert text.splitlines()[0] == (
        "STOPPED: interrupted by Ctrl-C (SIGINT) before any rank was started"
    )
    assert "next:" not in text
    assert "next: distdbg analyze RUN" in reported(terminated(0), interrupted=2, analyze="RUN")


def test_a_rank_with_the_error_of_the_abort_has_failed_whatever_ended_its_process() -> None:
    late = replace(aborted(1), end=ended(1, signal=15, was_asked=True))
    late = replace(late, error=replace(late.error, aborted_by=AGENT)) if late.error else late
    first = aborted(0)
    text = reported(first, late, terminated(2), verdict=KNOT)
    assert "2 ranks ended with an error because of it, 1 was terminated" in text


def test_a_rank_that_ended_by_its_own_exit_code_is_the_cause_and_was_not_aborted() -> None:
    waits = "rank 1 returned while ranks 0,2 wait for it in all_reduce #3 on group 'world'"
    verdict = AbortWords(what=waits, type="missing rank", ranks=(1,), by=AGENT)
    text = f"JobAborted: the job was aborted by the agent: {waits}"
    others = [
        LostRankEvidence(
            end=ended(rank, exit_code=1),
            error=error(text, type="JobAborted", because_of=(1,), aborted_by=AGENT),
        )
        for rank in (0, 2)
    ]
    own = LostRankEvidence(end=ended(1, exit_code=1))
    line = "  the job was aborted: 2 ranks ended with an error because of it\n"
    assert line in reported(own, *others, verdict=verdict)
    what = (
        "rank 1 exited with code 1 while ranks 0,2 waited for it in all_reduce #3 on group 'world'"
    )
    known = Diagnosis(
        kind="dead rank", what=what, ranks=(1,), advice="see why a.py:1 ends the process"
    )
    text = reported(own, *others, verdict=verdict, diagnosis=known)
    assert text.startswith(f"FAILED: {what}\n{line}  hint: see why a.py:1 ends the process\n")
