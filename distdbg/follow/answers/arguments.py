"""Arguments of a request, checked: a value of the right type, or a UsageError."""

from __future__ import annotations

from typing import Any

from distdbg.errors import UsageError

Plain = dict[str, Any]


def number_of(arguments: Plain, name: str, otherwise: int | None, least: int, most: int) -> int:
    """A whole number within these; without `otherwise` it has to be there."""
    value = arguments.get(name, otherwise)
    if type(value) is not int or not least <= value <= most:
        upper = f" to {most}" if most < 2**31 else ""
        raise UsageError(f"{name!r} is a number from {least}{upper}")
    return value


def text_of(arguments: Plain, name: str, otherwise: str | None = None) -> str:
    """A text; without `otherwise` it has to be there."""
    text = arguments.get(name, otherwise)
    if not isinstance(text, str):
        raise UsageError(f"{name!r} is a text")
    return text


def ranks_of(arguments: Plain) -> set[int] | None:
    """The ranks that are meant; None: all."""
    ranks = arguments.get("ranks")
    if ranks is None:
        return None
    if not isinstance(ranks, list) or not all(type(rank) is int for rank in ranks):
        raise UsageError("'ranks' is a list of numbers")
    return set(ranks)
