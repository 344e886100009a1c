"""What counts as named, vague or wrong in what another library says."""

from __future__ import annotations

from typing import Any

import pytest
from runner.truth import FOLDER, read_truth
from runner.verdict import Verdict, judge

SHAPE = read_truth(FOLDER / "wrong" / "shape.py")
BARRIER = read_truth(FOLDER / "wrong" / "barrier_instead_of_the_op.py")
RIGHT = read_truth(FOLDER / "right" / "p2p_then_barrier.py")

DETAIL = (
    "Detected mismatch between collectives on ranks. Rank {me} is running collective: "
    "CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, TensorShape=[4, 8]), but Rank {peer} "
    "is running collective: CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, "
    "TensorShape=[3, 8]).Collectives differ in the following aspects: Tensor shapes: 4 8vs 3 8"
)
MADE_UP = (
    "Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE), but "
    "Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE)."
)
CLOSED = "Connection closed by peer [127.0.0.1]:15261"


def _ended(text: str | None, exit_code: int = 1, name: str = "RuntimeError") -> dict[str, Any]:
    error = None
    if text is not None:
        error = {"class": name, "text": text, "first": text, "facts": {}}
    report = {"error": error, "raised_s": 1.0, "took_s": 0.1}
    return {
        "hung": False, "exit_code": exit_code, "stderr": "", "stdout": "", "report": report,
    }  # fmt: skip


SILENT = _ended(None, exit_code=0)


def _detail(me: int, peer: int) -> dict[str, Any]:
    return _ended(DETAIL.format(me=me, peer=peer))


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([_detail(0, 2), _detail(1, 2), _detail(2, 0)], Verdict.NO_LINES),
        ([_detail(0, 1), _detail(1, 2), _detail(2, 0)], Verdict.WRONG_BLAME),
        ([_detail(0, 2), _ended(CLOSED), _detail(2, 0)], Verdict.VAGUE),
        ([_detail(0, 2), SILENT, _detail(2, 0)], Verdict.SILENT),
        ([_detail(0, 2), SILENT, {**SILENT, "hung": True}], Verdict.HANG),
        ([_detail(0, 2), {**SILENT, "hung": True}, _ended(None, -6)], Verdict.CRASH),
    ],
)
def test_the_worst_rank_of_a_wrong_program_counts(results: Any, expected: Verdict) -> None:
    assert judge(SHAPE, results, is_ours=False) is expected


def test_an_op_that_nobody_called_is_wrong_blame() -> None:
    assert judge(BARRIER, [_ended(MADE_UP)] * 3, is_ours=False) is Verdict.WRONG_BLAME


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (SILENT, Verdict.FINE),
        (_ended(CLOSED), Verdict.FALSE_ALARM),
        (_ended("", name="AssertionError"), Verdict.WRONG_RESULT),
        ({**SILENT, "hung": True}, Verdict.HANG),
        (_ended(None, -11), Verdict.CRASH),
    ],
)
def test_a_right_program_is_fine_or_harmed(last: Any, expected: Verdict) -> None:
    assert judge(RIGHT, [SILENT, SILENT, last], is_ours=False) is expected
