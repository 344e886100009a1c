"""NCCL's number of a reduce op. It has no bit operations; of bools they are MIN and MAX.

PREMUL_SUM has no number: an op with its factor is made for each call (nccl_functions.py).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from distdbg.errors import UsageError
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType, ReduceOp, check_reduce

_SUM, _PRODUCT, _MAX, _MIN, _AVG = range(5)
_PLAIN: Final = {
    RedOpType.SUM: _SUM,
    RedOpType.AVG: _AVG,
    RedOpType.PRODUCT: _PRODUCT,
    RedOpType.MIN: _MIN,
    RedOpType.MAX: _MAX,
}
_BOOL: Final = {
    RedOpType.SUM: _MAX,
    RedOpType.MAX: _MAX,
    RedOpType.BOR: _MAX,
    RedOpType.PRODUCT: _MIN,
    RedOpType.MIN: _MIN,
    RedOpType.BAND: _MIN,
}


def op_code(op: ReduceOp, dtype: Dtype) -> int | None:
    """NCCL's number; None for PREMUL_SUM. UsageError where NCCL has no such op."""
    check_reduce(op, dtype)
    if op.op is RedOpType.PREMUL_SUM:
        return None
    code = (_BOOL if dtype is Dtype.bool_ else _PLAIN).get(op.op)
    if code is None:
        raise UsageError(
            f"NCCL has no reduce op {op.op.name} for {dtype.label}",
            hint="reduce the array on a group with backend 'gloo'",
        )
    return code


def factor_bytes(factor: float, dtype: Dtype) -> bytes:
    """The factor of PREMUL_SUM as one element of the dtype that is computed with."""
    real = {Dtype.complex64: Dtype.float32, Dtype.complex128: Dtype.float64}.get(dtype, dtype)
    return np.array(factor, real.to_numpy()).tobytes()
