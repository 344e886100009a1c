"""ReduceOp as torch.distributed has it, and which ops are defined for which dtypes.

`ReduceOp.SUM` is a member of `ReduceOp.RedOpType`, an int from 0; `ReduceOp(ReduceOp.SUM)` is the
object form, equal to it and taken wherever it is. `make_premul_sum` makes the only op with a
factor. Both forms have plain attributes `code` (int), `op`, `factor`: hot paths need not ask which.

Which op for which dtype; (t) marks torch's rule, as gloo of torch 2.13 answered:
    complex    SUM, AVG, PREMUL_SUM (t)
    float      all but BAND, BOR, BXOR (t)
    integers   all but PREMUL_SUM (NCCL's rule); AVG divides toward zero (NCCL's; gloo refuses it)
    bool       SUM, MAX, BOR: or. PRODUCT, MIN, BAND: and. BXOR: xor (t; but where gloo's SUM stores
               2 for True + True, ours stores 1). Neither AVG (t) nor PREMUL_SUM
int16, uint16, uint32, uint64 and float8 have no kernel in gloo; here they go like their kin.
"""

from __future__ import annotations

import warnings
from enum import IntEnum
from typing import ClassVar, Self

from distdbg.errors import UsageError, WrongTypeError
from distdbg.ops.dtypes import Dtype


class RedOpType(IntEnum):
    """The kinds of reductions; the numbers are torch's and native/core/reduce.hpp's."""

    code: int
    op: RedOpType
    factor: float | None

    def __new__(cls, value: int) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.code = value
        member.op = member
        member.factor = None
        return member

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


# Inside ReduceOp the name RedOpType means the attribute.
_Kind = RedOpType


class _AlsoBareKinds(type):
    # torch's rule: isinstance(ReduceOp.SUM, ReduceOp). It makes the declarations below honest.
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, RedOpType) or type.__instancecheck__(cls, instance)


class ReduceOp(metaclass=_AlsoBareKinds):
    """How the elements of all ranks are combined."""

    __slots__ = ("code", "factor", "op")

    code: int
    op: _Kind
    #: Multiplies each rank's input before the sum; None unless made by make_premul_sum().
    factor: float | None

    RedOpType: ClassVar[type[_Kind]]
    SUM: ClassVar[ReduceOp]
    AVG: ClassVar[ReduceOp]
    PRODUCT: ClassVar[ReduceOp]
    MIN: ClassVar[ReduceOp]
    MAX: ClassVar[ReduceOp]
    BAND: ClassVar[ReduceOp]
    BOR: ClassVar[ReduceOp]
    BXOR: ClassVar[ReduceOp]
    PREMUL_SUM: ClassVar[ReduceOp]

    def __init__(self, op: ReduceOp | _Kind) -> None:
        if not isinstance(op, RedOpType):
            raise UsageError(
                f"ReduceOp() takes a member of ReduceOp.RedOpType such as ReduceOp.SUM, got {op!r}"
            )
        self.op = op
        self.code = op.code
        self.factor = None

    # As in torch, the factor plays no part here; that ranks have one is compared when they meet.
    def __eq__(self, other: object) -> bool:
        if isinstance(other, ReduceOp):
            return self.code == other.code
        return NotImplemented

    def __hash__(self) -> int:
        return self.code

    def __repr__(self) -> str:
        if self.factor is None:
            return f"ReduceOp({self.op.name})"
        return f"ReduceOp({self.op.name}, factor={self.factor!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.op, self.factor)


ReduceOp.RedOpType = RedOpType
for _kind in RedOpType:
    setattr(ReduceOp, _kind.name, _kind)


def _restore(op: RedOpType, factor: float | None) -> ReduceOp:
    restored = ReduceOp(op)
    restored.factor = factor
    return restored


def make_premul_sum(factor: float) -> ReduceOp:
    """A sum of inputs each multiplied by `factor`: a number, or an array of one element."""
    try:
        number = float(factor)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the factor of PREMUL_SUM is one real number, got {type(factor).__name__}"
        ) from error
    return _restore(RedOpType.PREMUL_SUM, number)


def supports_complex(reduceOp: ReduceOp) -> bool:
    """Whether the op is defined for complex64 and complex128."""
    if not isinstance(reduceOp, ReduceOp):
        raise WrongTypeError(f"supports_complex takes a ReduceOp, not {reduceOp!r:.80}")
    return _is_defined(reduceOp.op, Dtype.complex64)


def _is_defined(kind: RedOpType, dtype: Dtype) -> bool:
    if kind is RedOpType.PREMUL_SUM:
        return dtype.is_floating or dtype.is_complex
    if kind is RedOpType.AVG:
        return dtype is not Dtype.bool_
    if kind in {RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR}:
        return dtype.is_integral or dtype is Dtype.bool_
    return kind is RedOpType.SUM or not dtype.is_complex


# All answers at once: check_reduce() runs for every op.
_DEFINED = tuple(tuple(_is_defined(kind, dtype) for dtype in Dtype) for kind in RedOpType)


def check_reduce(op: ReduceOp, dtype: Dtype) -> None:
    """Raise UsageError unless `op` is a reduce op that is defined for `dtype`."""
    try:
        defined = _DEFINED[op.code][dtype]
    except AttributeError:
        raise WrongTypeError(
            f"a reduce op is a ReduceOp such as ReduceOp.SUM, got {op!r}"
        ) from None
    if not defined:
        others = ", ".join(kind.name for kind in RedOpType if _DEFINED[kind][dtype])
        raise UsageError(
            f"reduce op {op.op.name} is not defined for {dtype.label}",
            details=[f"defined for {dtype.label}: {others}"],
        )
    if op.code == _PREMUL_SUM and op.factor is None:
        raise UsageError(
            "reduce op PREMUL_SUM has no factor",
            hint="make the op with make_premul_sum(factor)",
        )


_PREMUL_SUM = RedOpType.PREMUL_SUM.code


class DeprecatedReduceOp:
    """torch.distributed.reduce_op: the old spelling of ReduceOp; warns at each use."""

    def __getattr__(self, name: str) -> object:
        if name == "__members__" or name in RedOpType.__members__:
            warnings.warn(
                "`reduce_op` is deprecated, use `ReduceOp`", category=FutureWarning, stacklevel=2
            )
            return RedOpType.__members__ if name == "__members__" else RedOpType[name]
        raise AttributeError(f"reduce_op has no attribute {name!r}")


reduce_op = DeprecatedReduceOp()
