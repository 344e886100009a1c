"""One word for what a library did with one program; the worst of its ranks counts.

Lenient where `score.py` is strict, so that it can be said of torch too, whose messages have no
source lines: what counts there is whether the op and an odd rank are named, and nothing false.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from runner.diagnosis import score_diagnosis
from runner.score import describe_end, score, score_haste
from runner.truth import Truth

Result = dict[str, Any]


class Verdict(StrEnum):
    """From the worst to the best."""

    CRASH = "crash"
    HANG = "hang"
    SILENT = "silent"
    WRONG_RESULT = "wrong result"
    FALSE_ALARM = "error"
    WRONG_BLAME = "wrong rank"
    VAGUE = "vague"
    NO_LINES = "no lines"
    NAMED = "named"
    FINE = "fine"
    ABSENT = "-"


ABOUT = {
    Verdict.NAMED: "op, ranks that differ and both source lines, on every rank",
    Verdict.NO_LINES: "op and a rank that differs, on every rank, but no source line",
    Verdict.VAGUE: "an error that leaves open, on some rank, which op or which rank it is about",
    Verdict.WRONG_BLAME: "an error that names an op that nobody called, or only innocent ranks",
    Verdict.SILENT: "no error on some rank that should have had one",
    Verdict.HANG: "ranks that had to be killed",
    Verdict.CRASH: "ranks that ended by SIGABRT or SIGSEGV",
    Verdict.FINE: "a right program, undisturbed",
    Verdict.FALSE_ALARM: "an error in a right program: a false alarm, or not supported",
    Verdict.WRONG_RESULT: "a right program that computed something else",
}

_CRASHES = {"SIGABRT", "SIGSEGV", "SIGBUS"}
_RANK = re.compile(r"\b[Rr]anks? ((?:\d+(?:, )?)+)")
_PAIR = re.compile(r"Rank (\d+) is running .*?but Rank (\d+) is running", re.DOTALL)
_OP_TYPE = re.compile(r"OpType=(\w+)")
#: How torch spells the kinds, without underscores.
_KINDS = (
    "all_reduce", "all_gather", "all_to_all", "barrier", "broadcast", "gather", "reduce_scatter",
    "reduce", "scatter",
)  # fmt: skip


def judge(truth: Truth, results: list[Result], *, is_ours: bool) -> Verdict:
    """The verdict over one run."""
    ends = [describe_end(result) for result in results]
    expected = list(zip(truth.outcome, ends, strict=True))
    if any(end in _CRASHES and end != wanted for wanted, end in expected):
        return Verdict.CRASH
    if "hung" in ends:
        return Verdict.HANG
    if truth.is_right:
        if all(end == "silent" for end in ends):
            return Verdict.FALSE_ALARM if is_ours and score(truth, results) else Verdict.FINE
        return Verdict.WRONG_RESULT if "AssertionError" in ends else Verdict.FALSE_ALARM
    if set(truth.outcome) == {"silent"} and not truth.warns:  # only the records tell
        diagnosis = results[0].get("diagnosis") if is_ours else None
        is_named = diagnosis is not None and not score_diagnosis(truth, diagnosis)
        return Verdict.NAMED if is_named else Verdict.SILENT
    if not score(truth, results) and not score_haste(truth, results):
        return Verdict.NAMED
    if truth.warns and all(end == "silent" for end in ends):
        return Verdict.SILENT
    if "AssertionError" in ends:
        return Verdict.SILENT  # its own check of the result has failed, nobody else's
    verdicts = [
        _judge_rank(truth, rank, result)
        for rank, result in enumerate(results)
        if _must_raise(truth.outcome[rank])
    ]
    return min(verdicts, key=list(Verdict).index, default=Verdict.SILENT)


def _must_raise(outcome: str) -> bool:
    return outcome not in ("silent", "*", "SIGKILL", "UsageError", "ValueError") and not (
        outcome.startswith("exit")
    )


def _judge_rank(truth: Truth, rank: int, result: Result) -> Verdict:
    report = result["report"]
    if describe_end(result) == "silent":
        return Verdict.SILENT
    if report is None or report["error"] is None:
        return Verdict.VAGUE
    text = report["error"]["text"]
    wanted = set(truth.missing[rank] or truth.odd or truth.names) - {rank}
    if rank in truth.odd:
        wanted = set(range(truth.ranks)) - {rank}
    kinds = {kind for kind in _KINDS if kind in " ".join([truth.op, *truth.says])}
    named_kinds = {_kind_of(name) for name in _OP_TYPE.findall(text)}
    if kinds and named_kinds - kinds:
        return Verdict.WRONG_BLAME
    pair = _PAIR.search(text)
    blamed = {int(pair[2])} if pair else _ranks_in(text) - {rank}
    if not blamed or not (named_kinds or kinds & set(re.findall(r"[a-z_]+", text))):
        return Verdict.VAGUE
    return Verdict.NO_LINES if blamed & wanted else Verdict.WRONG_BLAME


def _kind_of(op_type: str) -> str:
    bare = op_type.lower().strip("_").replace("_", "")
    for kind in _KINDS:
        if bare.startswith(kind.replace("_", "")):
            return kind
    return op_type


def _ranks_in(text: str) -> set[int]:
    return {int(number) for found in _RANK.findall(text) for number in found.split(", ") if number}
