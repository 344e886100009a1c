"""torch's reduce ops as ours."""

from __future__ import annotations

from typing import Any

from distdbg.errors import WrongTypeError
from distdbg.ops.reduce_op import RedOpType, ReduceOp, make_premul_sum

_BY_NUMBER: dict[int, ReduceOp] = {int(kind): getattr(ReduceOp, kind.name) for kind in RedOpType}
_PREMUL_SUM = RedOpType.PREMUL_SUM


def reduce_op(theirs: Any) -> ReduceOp:
    """The same op; `theirs` is a torch ReduceOp or a member of its RedOpType."""
    # Its number, and the cheapest way to it: `.op` takes three times as long.
    number = hash(theirs)
    if number == _PREMUL_SUM:
        return make_premul_sum(_factor(theirs))
    try:
        return _BY_NUMBER[number]
    except KeyError:
        raise WrongTypeError(f"{theirs!r:.80} is no reduce op of the backend distdbg") from None


def _factor(theirs: Any) -> Any:
    """The factor of a PREMUL_SUM, which torch shows to pickle alone."""
    state = theirs.__getstate__()
    return state[1]
