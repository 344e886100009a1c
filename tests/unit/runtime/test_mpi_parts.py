"""The parts of the MPI backend that need no MPI: which op, which memory, in how many parts."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distdbg import _native
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType, ReduceOp
from distdbg.runtime.arrays.buffers import as_output
from distdbg.runtime.backends.mpi.failures import to_error
from distdbg.runtime.backends.mpi.memory import MpiBuffer, MpiRequests, as_array, room_for
from distdbg.runtime.backends.mpi.on_gpus import goes_direct
from distdbg.runtime.backends.mpi.reductions import name_of
from distdbg.runtime.backends.nap import LONGEST_S, PollBackoff
from tests.unit.nccl.stand_in import StandInArray


def test_every_reduction_that_is_defined_has_an_op() -> None:
    for dtype in Dtype:
        for kind in RedOpType:
            if kind is not RedOpType.PREMUL_SUM and _native.supports(kind, dtype):
                name_of(kind, dtype)  # a KeyError where the table lacks one


@pytest.mark.parametrize(
    ("kind", "dtype", "name"),
    [
        (RedOpType.SUM, Dtype.float32, "SUM"),
        (RedOpType.AVG, Dtype.int64, "SUM"),
        (RedOpType.SUM, Dtype.bool_, "LOR"),
        (RedOpType.MIN, Dtype.bool_, "LAND"),
        (RedOpType.MAX, Dtype.int8, "MAX"),
        (RedOpType.SUM, Dtype.uint8, None),
        (RedOpType.AVG, Dtype.int16, None),
        (RedOpType.MAX, Dtype.float64, None),
        (RedOpType.SUM, Dtype.bfloat16, None),
        (RedOpType.SUM, Dtype.complex64, "SUM"),
    ],
)
def test_mpi_reduces_what_it_can(kind: RedOpType, dtype: Dtype, name: str | None) -> None:
    assert name_of(kind, dtype) == name


def test_a_piece_is_cut_at_elements() -> None:
    piece = MpiBuffer(1000, 6, int(Dtype.float64))
    assert piece.nbytes == 48
    assert piece.cut([1, 0, 5]) == [
        MpiBuffer(1000, 1, piece.dtype),
        MpiBuffer(1008, 0, piece.dtype),
        MpiBuffer(1008, 5, piece.dtype),
    ]
    assert piece.overlaps(MpiBuffer(1040, 1, piece.dtype))
    assert not piece.overlaps(MpiBuffer(1048, 1, piece.dtype))
    assert not piece.overlaps(MpiBuffer(1000, 0, piece.dtype))


def test_more_than_a_request_can_have_goes_in_parts() -> None:
    piece = MpiBuffer(0, 7, int(Dtype.int16))
    assert [(part.address, part.count) for part in piece.parts(3)] == [(0, 3), (6, 3), (12, 1)]
    assert piece.parts(7) == [piece]
    nothing = MpiBuffer(0, 0, int(Dtype.int16))
    assert nothing.parts(3) == [nothing]


def test_a_nap_grows_to_its_longest() -> None:
    nap = PollBackoff()
    for _ in range(80):
        nap()
    assert nap._next_s == LONGEST_S


def test_blocks_are_spread_before_arrays_with_gaps_are_brought_back() -> None:
    mpi = SimpleNamespace(
        buffer=SimpleNamespace(fromaddress=lambda at, size: (ctypes.c_char * size).from_address(at))
    )
    whole = np.zeros(8, np.uint8)
    buffers = [as_output(whole[:4:2]), as_output(whole[4::2])]
    started = MpiRequests([], finish=[each.finish for each in buffers if each.finish is not None])
    room = room_for(mpi, [MpiBuffer.of(each) for each in buffers], started)
    as_array(mpi, room)[:] = [1, 2, 3, 4]
    for finish in started.finish:
        finish()
    assert whole.tolist() == [1, 0, 2, 0, 3, 0, 4, 0]


STACK = """Other MPI error, error stack:
internal_Comm_dup(98)...............: MPI_Comm_dup(MPI_COMM_WORLD, newcomm=0x7f50102fc560) failed
MPIR_Get_contextid_sparse_group(567): Too many communicators (0/2048 free on this process)
"""


@pytest.mark.parametrize(
    ("reported", "text", "hint"),
    [
        ("MPI_ERR_TRUNCATE: message truncated", "MPI_ERR_TRUNCATE: message truncated", "longer"),
        ("Message truncated, error stack:\nf(1)..: 2 < 10", "Message truncated: 2 < 10", "longer"),
        (
            STACK,
            "Other MPI error: Too many communicators (0/2048 free on this process)",
            "destroy groups",
        ),
        ("MPI_ERR_RANK: invalid rank", "MPI_ERR_RANK: invalid rank", None),
    ],
)
def test_an_error_says_what_mpi_says_at_last(reported: str, text: str, hint: str | None) -> None:
    error = to_error(
        SimpleNamespace(Get_error_string=lambda: reported, Get_error_class=lambda: 15),
        "making group 'dp'",
        "an MPI",
    )
    assert error.what == f"making group 'dp' failed in MPI: {text}"
    assert error.details == [f"an MPI: {text} (error class 15)"]
    assert (error.hint or "").find(hint or "") >= 0
    assert (error.hint is None) == (hint is None)


@pytest.mark.parametrize(
    ("name", "reads", "largest", "directly"),
    [
        ("Open MPI v5.0.11", True, 2**31 - 1, {"send", "recv"}),
        ("Open MPI v6.0.0", True, 2**62, {"send", "recv"}),
        ("MPICH Version: 5.0.2", True, 2**62, {"send", "recv", "all_reduce", "broadcast"}),
        ("MPICH Version: 4.1", True, 2, set()),
        ("MPICH Version: 5.0.2", False, 2**62, set()),
    ],
)
def test_arrays_on_a_gpu_go_as_they_are_where_mpi_reads_them(
    name: str, reads: bool, largest: int, directly: set[str]
) -> None:
    library: Any = SimpleNamespace(
        name=name,
        reads_gpus=reads,
        has_large_counts=largest > 2**31,
        is_too_many=lambda count: count > largest,
    )
    x, y = StandInArray(np.zeros(4, np.int32)), StandInArray(np.zeros(4, np.int32))
    both = (x,)
    calls = {
        "send": Call(Kind.SEND, (x,), (), peer=1),
        "recv": Call(Kind.RECV, (), (x,), peer=1),
        "broadcast": Call(Kind.BROADCAST, both, both, root=0),
        "all_reduce": Call(Kind.ALL_REDUCE, (x,), (y,), op=ReduceOp.SUM),
    }
    assert {what for what, call in calls.items() if goes_direct(call, library)} == directly
