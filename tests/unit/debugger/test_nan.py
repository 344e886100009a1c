from typing import Any

import numpy as np
import pytest

from distdbg.debugger.nan import describe_nonfinite
from distdbg.ops.call import Call, Kind
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api import calls

GOOD = np.arange(6, dtype=np.float64).reshape(2, 3)
BAD = GOOD.copy()
BAD[1, 0] = np.inf
BAD[1, 2] = np.nan
SAID = "has 2 NaN or Inf of 6, the first is Inf at element 3"


def reduce(array: Any) -> Call:
    return calls.all_reduce(array, ReduceOp.SUM)


def test_the_first_of_them_is_named() -> None:
    assert describe_nonfinite(reduce(BAD), 0) == f"the input {SAID}"
    assert describe_nonfinite(reduce(BAD[:, ::2]), 0).startswith("the input has 2 NaN or Inf of 4")


@pytest.mark.parametrize("array", [GOOD, GOOD.astype(int), np.zeros(0), bytearray(8)], ids=str)
def test_of_what_is_finite_nothing_is_said(array: Any) -> None:
    assert describe_nonfinite(reduce(array), 0) == ""


def test_only_what_is_sent_is_looked_at() -> None:
    assert describe_nonfinite(calls.broadcast(2, BAD, 0), 0) == f"the input {SAID}"
    assert describe_nonfinite(calls.broadcast(2, BAD, 0), 1) == ""
    assert describe_nonfinite(calls.recv(2, BAD, 1, 0), 0) == ""
    assert describe_nonfinite(calls.send(2, BAD, 1, 0), 0) == f"the input {SAID}"


def test_of_several_inputs_the_one_is_named() -> None:
    call = Call(Kind.SCATTER, (GOOD, BAD), (), root=0)
    assert describe_nonfinite(call, 0) == f"input 1 {SAID}"


def test_tensors_are_looked_at() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.zeros(4, dtype=dtype)
        assert describe_nonfinite(reduce(tensor), 0) == ""
        tensor[1] = float("nan")
        assert "the first is NaN at element 1" in describe_nonfinite(reduce(tensor), 0)


class OnDevice:
    """An array whose memory we cannot read; its library can say."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)

    def isfinite(self) -> Any:
        return np.isfinite(self._values)


def test_an_array_on_a_device_is_asked_for_itself() -> None:
    for values, said in (([1.0, 2.0], ""), ([1.0, np.nan], "the input has NaN or Inf")):
        call = Call(Kind.ALL_REDUCE, (OnDevice(values),), ())
        assert describe_nonfinite(call, 0) == said


def test_what_is_no_array_is_left_to_the_op() -> None:
    assert describe_nonfinite(Call(Kind.ALL_REDUCE, (object(),), ()), 0) == ""
