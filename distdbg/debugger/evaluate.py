"""The value of an expression in a frame, as a text that is short whatever the value is."""

from __future__ import annotations

import reprlib
from types import FrameType
from typing import Any, Final

from distdbg.errors import format_error

#: How long the text of a value may be.
MAX_TEXT: Final = 2000
#: How many numbers of an array are shown.
_MAX_NUMBERS: Final = 6

Answer = dict[str, str]


def evaluate(expression: str, frame: FrameType) -> Answer:
    """{"value", "type"}, or {"error"}. Whatever the expression raises is an answer."""
    return evaluate_in(expression, frame.f_globals, frame.f_locals)


def evaluate_in(expression: str, names: dict[str, Any], local: Any) -> Answer:
    """The same with the namespaces given."""
    try:
        code = compile(expression.strip(), "<distdbg exec>", "eval")
    except (SyntaxError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error} (an expression is needed)"}
    try:
        value = eval(code, names, local)
        return {"value": show(value), "type": type_name(value)}
    except BaseException as error:  # noqa: BLE001 - the user's code; it is told to who asked
        return {"error": shorten(format_error(error))}


def show(value: object) -> str:
    """A short text: arrays as what they are and some numbers, the rest as repr cuts it."""
    array = _show_array(value)
    if array is not None:
        return shorten(array)
    cut = reprlib.Repr()
    cut.maxstring = cut.maxother = cut.maxlong = 400
    cut.maxlist = cut.maxtuple = cut.maxset = cut.maxdict = cut.maxarray = 12
    cut.maxlevel = 4
    return shorten(cut.repr(value))


def type_name(value: object) -> str:
    """'numpy.ndarray', 'int'."""
    kind = type(value)
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def shorten(text: str, most: int = MAX_TEXT) -> str:
    """At most so many characters, with what is missing said."""
    return text if len(text) <= most else f"{text[: most - 40]}... {len(text)} characters"


def _show_array(value: object) -> str | None:
    """'float32[4, 8] [0.0, 1.0, ...]' for what looks like an array; None for all else."""
    kind = type(value)
    shape, dtype = getattr(kind, "shape", None), getattr(kind, "dtype", None)
    if shape is None or dtype is None or not hasattr(kind, "__getitem__"):
        return None
    array: Any = value
    try:
        sizes = tuple(int(size) for size in array.shape)
        count = 1
        for size in sizes:
            count *= size
        name = str(array.dtype).removeprefix("torch.")
        where = getattr(array, "device", None)
        device = "" if where is None or str(where) == "cpu" else f" on {where}"
        text = f"{name}[{', '.join(map(str, sizes))}]{device}"
        if not count:
            return text
        if not sizes:
            return f"{text} {array.item()!r}"
        # Without a copy of the whole: the first and the last rows as far as they are needed.
        first = _numbers(array, sizes, _MAX_NUMBERS if count <= _MAX_NUMBERS else 3)
        if count <= _MAX_NUMBERS:
            return f"{text} [{', '.join(first)}]"
        last = _numbers(array, sizes, 3, from_end=True)
        return f"{text} [{', '.join(first)}, ..., {', '.join(last)}]"
    except Exception:  # noqa: BLE001 - not the array that it looked like
        return None


def _numbers(array: Any, sizes: tuple[int, ...], most: int, *, from_end: bool = False) -> list[str]:
    count = 1
    for size in sizes:
        count *= size
    flat = range(max(count - most, 0), count) if from_end else range(min(most, count))
    found = []
    for place in flat:
        index = []
        for size in reversed(sizes):
            place, at = divmod(place, size)
            index.append(at)
        one = array[tuple(reversed(index))]
        item = one.item() if hasattr(one, "item") else one
        found.append(format(item, ".6g") if isinstance(item, float) else repr(item))
    return found
