"""Whole numbers among arguments: whatever has `__index__` is one; text and floats are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

from distdbg.errors import UsageError, WrongTypeError


def to_int(what: str, argument: str, value: Any) -> int:
    """The number; UsageError names the function and the argument."""
    if type(value) is int:
        return value
    try:
        return index(value)
    except TypeError:
        raise WrongTypeError(
            f"{what}: {argument} must be a whole number, not {value!r:.80} ({type(value).__name__})"
        ) from None


def to_ints(what: str, argument: str, values: Any) -> list[int]:
    """A list of them; text is no list."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise WrongTypeError(
            f"{what}: {argument} must be a list of whole numbers, not {values!r:.80} "
            f"({type(values).__name__})"
        )
    return [to_int(what, f"{argument}[{at}]", value) for at, value in enumerate(values)]


def to_lists(what: str, argument: str, values: Any) -> Sequence[Any]:
    """A list of one list of ranks or more; what is in them is looked at later."""
    if not isinstance(values, (list, tuple)):
        raise WrongTypeError(
            f"{what}: {argument} must be a list of lists of ranks, not {values!r:.80} "
            f"({type(values).__name__})"
        )
    if not values:
        raise UsageError(f"{what}: {argument} is empty")
    return values


def to_place(argument: str, value: Any) -> int:
    """Read rank= or world_size=, also as text, as argparse and the environment give them."""
    if isinstance(value, str):
        text = value.strip()
        if text.removeprefix("-").isdecimal():
            return int(text)
        raise UsageError(f"{argument}={value!r:.80} is not a number")
    return to_int("init_process_group", argument, value)
