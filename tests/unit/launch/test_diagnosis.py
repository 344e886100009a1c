"""What the launcher takes from `distdbg analyze`, and a report that is headed by it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distdbg.launch.diagnosis import Diagnosis, diagnose_run, read_diagnosis
from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.report import JobOutcome, report
from distdbg.record.ends import RankEnd
from distdbg.record.error_file import ErrorFacts

FINDING: dict[str, Any] = {
    "kind": "missing rank",
    "severity": "error",
    "what": "rank 1 made one more call than ranks 0,2, which left while it waited for them",
    "ranks": [1],
    "victims": [],
    "evidence": [{"text": "ranks 0,2 made 5 barriers"}],
    "advice": "look at how often rank 1 calls it",
}


def document(root: int | None, *findings: dict[str, Any]) -> bytes:
    return json.dumps({"verdict": {"root": root}, "findings": findings}).encode()


def test_the_root_is_read() -> None:
    found = read_diagnosis(document(1, FINDING | {"what": "another"}, FINDING))
    assert found == Diagnosis(
        kind="missing rank",
        what=FINDING["what"],
        ranks=(1,),
        evidence=("ranks 0,2 made 5 barriers",),
        advice="look at how often rank 1 calls it",
    )


def test_the_source_of_its_stacks_is_read() -> None:
    def frame(site: str, text: str, *notes: str) -> dict[str, Any]:
        return {"site": f"/job/{site}", "text": text, "notes": notes}

    cause = [
        frame("x.py:50 (fit)", "dist.all_reduce(a)", "in `for i in b` (line 45)"),
        frame("x.py:61 (main)", "fit()"),  # why it came there may stand in who called it
        frame("x.py:70 (<module>)", "main()"),  # nothing more is known of it
    ]
    others = [frame("x.py:50 (fit)", "dist.all_reduce(a)"), frame("x.py:62 (g)", "h()", "noted")]
    whole = json.loads(document(0, FINDING))
    whole["stacks"] = [
        {
            "ranks": [1],
            "what": "did not call all_reduce here",
            "is_cause": True,
            "role": "left out",
            "frames": cause,
        },
        {"ranks": [0, 2, 3], "what": "in barrier #2", "is_cause": False, "frames": others},
        {"ranks": [4], "what": "", "is_cause": False, "frames": [frame("y.py:1 (f)", "")]},
    ]
    found = read_diagnosis(json.dumps(whole).encode())
    assert found is not None
    assert found.source == (
        "rank 1 did not call all_reduce at x.py:50 (fit): dist.all_reduce(a)",
        "  in `for i in b` (line 45)",
        "rank 1 did not call all_reduce at x.py:61 (main): fit()",
        "ranks 0,2-3 at x.py:62 (g): h()",
        "  noted",
    )
    # Both sides of a deadlock are told before there is more of the first one.
    many = [frame(f"x.py:{line} (f)", "f()", "in `for i in b` (line 9)") for line in range(50, 54)]
    other = [frame(f"y.py:{line} (g)", "g()", "under `if c` (line 2)") for line in range(50, 54)]
    sides = [
        {"ranks": [rank], "what": "in send", "is_cause": True, "frames": frames}
        for rank, frames in enumerate((many, other))
    ]
    found = read_diagnosis(json.dumps(whole | {"stacks": sides}).encode())
    assert found is not None
    assert [sum(f"{file}.py" in line for line in found.source) for file in "xy"] == [3, 3]
    found = read_diagnosis(
        json.dumps(whole | {"stacks": [sides[0], sides[1] | {"frames": []}]}).encode()
    )
    assert found is not None
    assert len(found.source) == 8
    # Another thread of the rank may hold the lock that it waits for.
    thread = {"what": "thread 'saver'", "role": "thread", "is_cause": True, "frames": cause[:1]}
    threads = [thread | {"ranks": [1]}]
    found = read_diagnosis(json.dumps(whole | {"stacks": threads}).encode())
    assert found is not None
    assert found.source[0] == "rank 1 thread 'saver' at x.py:50 (fit): dist.all_reduce(a)"
    # Where no rank is the cause, each may be.
    whole["stacks"] = [{"ranks": [1], "what": "", "is_cause": False, "frames": cause}]
    found = read_diagnosis(json.dumps(whole).encode())
    assert found is not None
    assert found.source[-1] == "rank 1 at x.py:61 (main): fit()"


def test_what_a_signal_interrupted_is_read_too_where_it_is_asked_for() -> None:
    text = document(0, FINDING | {"kind": "stopped", "severity": "note"})
    assert read_diagnosis(text) is None
    found = read_diagnosis(text, with_notes=True)
    assert found is not None
    assert (found.kind, found.ranks) == ("stopped", (1,))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"Traceback",
        b"[]",
        b"{}",
        document(None),
        document(3, FINDING),
        document(0, FINDING | {"severity": "note"}),
        document(0, FINDING | {"what": ["x"]}),
    ],
)
def test_anything_else_is_no_diagnosis(text: bytes) -> None:
    assert read_diagnosis(text) is None


def test_records_that_are_elsewhere_are_not_waited_for(tmp_path: Path) -> None:
    assert diagnose_run(str(tmp_path), tmp_path, {0: 1}) is None
    assert diagnose_run("", tmp_path, {}) is None


def test_the_report_is_headed_by_it() -> None:
    def end(rank: int, code: int) -> RankEnd:
        return RankEnd(
            rank=rank,
            pid=10 + rank,
            host="n1",
            ended_ns=1,
            wall_ns=1,
            cause="exited",
            exit_code=code,
        )

    error = ErrorFacts(text="RankLeft: rank 0 left", wall_ns=1, type="RankLeft", because_of=(0,))
    evidence = (
        LostRankEvidence(end=end(0, 0)),
        LostRankEvidence(end=end(1, 1), error=error),
        LostRankEvidence(end=end(2, 0)),
    )
    plain = report(JobOutcome(evidence=evidence))
    assert plain.startswith("MISMATCH: rank 0 ended with exit code 0 while other ranks still")
    known = read_diagnosis(document(0, FINDING))
    assert known is not None
    known = replace(known, source=("at x.py:50 (fit): a()", "  noted"))
    reported = report(JobOutcome(evidence=evidence, diagnosis=known))
    assert reported.splitlines() == [
        f"MISMATCH: {FINDING['what']}",
        "  ranks 0,2 made 5 barriers",
        "  rank 1 failed because of it: RankLeft",
        "  hint: look at how often rank 1 calls it",
        "  at x.py:50 (fit): a()",
        "    noted",
    ]


def test_ranks_at_the_same_lines_are_told_once_and_a_rank_whose_op_was_over_as_last_seen() -> None:
    def stack(what: str, *ranks: int, line: int = 18) -> dict[str, Any]:
        frame = {"site": f"/job/x.py:{line} (step)", "text": "dist.all_reduce(a)", "notes": []}
        role = "after an op" if line == 7 else "over"
        named = {"what": what, "is_cause": line == 7, "role": role}
        return named | {"ranks": ranks, "frames": [frame]}

    whole = json.loads(document(0, FINDING))
    whole["stacks"] = [
        stack("after all_reduce #7 on group 'world'", 2, line=7),
        stack("raised CollectiveError in all_reduce #8", 1, 3),
        stack("raised KeyboardInterrupt in all_reduce #8", 0),
    ]
    found = read_diagnosis(json.dumps(whole).encode())
    assert found is not None
    assert found.source == (
        "rank 2 was last seen at x.py:7 (step): dist.all_reduce(a)",
        "ranks 0-1,3 at x.py:18 (step): dist.all_reduce(a)",
    )


def test_what_differs_between_ranks_at_the_same_lines_is_told_of_each() -> None:
    def stack(rank: int, *notes: str) -> dict[str, Any]:
        frame = {"site": "/job/x.py:18 (step)", "text": "dist.all_reduce(a)", "notes": notes}
        return {
            "ranks": [rank],
            "what": f"{rank}",
            "is_cause": False,
            "role": "over",
            "frames": [frame],
        }

    whole = json.loads(document(0, FINDING))
    whole["stacks"] = [stack(0, "n = 2", "k = 1"), stack(1, "n = 3", "k = 1")]
    found = read_diagnosis(json.dumps(whole).encode())
    assert found is not None
    assert found.source == (
        "ranks 0-1 at x.py:18 (step): dist.all_reduce(a)",
        "  n = 2 on rank 0",
        "  k = 1",
        "  n = 3 on rank 1",
    )


@pytest.mark.parametrize("is_one_place", [True, False])
def test_waits_that_the_first_line_has_are_not_told_again(is_one_place: bool) -> None:
    waits = [
        {
            "text": f"rank {rank} waits in send to rank {1 - rank} at x.py:5",
            "kind": "wait",
            "ranks": [rank],
        }
        for rank in (0, 1)
    ]
    finding = FINDING | {
        "what": "ranks 0-1 are deadlocked (cycle of 2 ranks): all wait in send at x.py:5",
        "evidence": [*waits, {"text": "rank 0 came first"}],
        "traits": ["one place"] if is_one_place else [],
    }
    found = read_diagnosis(document(0, finding))
    assert found is not None
    reported = found.evidence
    assert len(reported) == (1 if is_one_place else 3)
    assert reported[-1] == "rank 0 came first"


def test_a_fact_whose_place_is_in_another_line_is_told_once() -> None:
    reported = [
        "rank 3 skipped all_reduce #9 at a.py:7 (f)",
        "rank 3 skipped all_reduce #9",
        "rank 1 is well",
    ]
    finding = FINDING | {"evidence": [{"text": text} for text in reported]}
    found = read_diagnosis(document(0, finding))
    assert found is not None
    assert found.evidence == (reported[0], reported[2])
