"""What comm hooks give back: a future, and by it an array for the bucket; errors that name the hook. Pure."""

from __future__ import annotations

from math import prod
from typing import Any

from distdbg.errors import UsageError, WrongTypeError
from distdbg.runtime.arrays.torch_arrays import is_tensor

_HINT = "see the section on comm hooks in docs/how-to/train-data-parallel.md"


def check_future(returned: Any, hook: str, bucket: str) -> Any:
    """Return what a hook returned; WrongTypeError unless it can be waited for."""
    if not callable(getattr(returned, "wait", None)):
        raise WrongTypeError(
            f"comm hook {hook} returned {_a(returned)} for {bucket}, not a future", hint=_HINT
        )
    return returned


def check_result(value: Any, flat: Any, hook: str, bucket: str) -> Any:
    """Return the array a hook's future ended with, maybe in a list; errors unless it fits the bucket."""
    if isinstance(value, (list, tuple)) and value:  # as a Work's future has it
        value = value[0]
    shape = getattr(value, "shape", None)
    if shape is None or is_tensor(value) != is_tensor(flat):
        kind = "a tensor" if is_tensor(flat) else "an array"
        raise WrongTypeError(
            f"the future of comm hook {hook} ended with {_a(value)} for {bucket}, not {kind}",
            hint=_HINT,
        )
    if prod(shape) != prod(flat.shape):
        raise UsageError(
            f"the future of comm hook {hook} ended with {prod(shape)} numbers for {bucket}, "
            f"which has {prod(flat.shape)}",
            hint=_HINT,
        )
    return value


def _a(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"
