"""Forms: what calls of one shape have in common, as JSON of at most 488 bytes.

A form is written once and used by each op of that shape. What is absent, empty or None has no key:

    {"name": "all_gather_into_tensor", "kind": "all_gather", "dtype": "float32", "device": "cpu",
     "inputs": [[4]], "outputs": [[16]], "nbytes": 64}

`root` is a global rank; `part` is [1, 3] for the second of three calls of a coalesced block; `sums` says in
which order the ranks are added up, where it is not their own; `members` are whom a group takes that is being
made, as ranges [start, stop, step]. A list that does not fit keeps its head, its length and a hash of the
whole, by which two ranks compare all of it; `cut` says that something is missing:

    {"kind": "all_gather", "outputs": {"head": [[4], [4]], "count": 500, "hash": "..."}, "cut": true}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Generic, TypeVar

from distdbg.record.format import FORM

MAX_FORM_NBYTES: Final = int(FORM["text"].code.removesuffix("s"))

#: How much of each list, then of each word, is kept; the first that fits is taken.
_HEADS: Final = (64, 32, 16, 8, 4, 2, 1, 0)
_WORDS: Final = (64, 32, 16, 8)
_WORD_KEYS: Final = ("name", "kind", "dtype", "device", "op", "sums")
_LIST_KEYS: Final = ("inputs", "outputs", "input_splits", "output_splits", "members")

Shape = tuple[int, ...]
Item = TypeVar("Item", int, Shape)


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item]):
    """A list, or the head of one that was too long."""

    items: tuple[Item, ...] = ()
    count: int = 0
    #: Digest of the whole list; empty: `items` is the whole list.
    hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What `write_form` was given, or `write_mark`: then all but the name is empty."""

    name: str = ""
    kind: str = ""
    dtype: str = ""
    device: str = ""
    op: str = ""
    sums: str = ""
    root: int | None = None
    inputs: Listing[Shape] = Listing()
    outputs: Listing[Shape] = Listing()
    input_splits: Listing[int] = Listing()
    output_splits: Listing[int] = Listing()
    members: Listing[Shape] = Listing()
    nbytes: int = 0
    part: tuple[int, int] | None = None
    #: Whether a list or a word was shortened.
    is_cut: bool = False


def write_form(
    *,
    name: str,
    kind: str,
    dtype: str = "",
    device: str = "",
    op: str = "",
    sums: str = "",
    root: int | None = None,
    inputs: Iterable[Sequence[int]] = (),
    outputs: Iterable[Sequence[int]] = (),
    input_splits: Sequence[int] | None = None,
    output_splits: Sequence[int] | None = None,
    members: Iterable[Sequence[int]] = (),
    nbytes: int = 0,
    part: tuple[int, int] | None = None,
) -> bytes:
    """Return the text of a form, shortened until it fits."""
    values: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "dtype": dtype,
        "device": device,
        "op": op,
        "sums": sums,
        "root": root,
        "inputs": [list(shape) for shape in inputs],
        "outputs": [list(shape) for shape in outputs],
        "input_splits": list(input_splits or ()),
        "output_splits": list(output_splits or ()),
        "members": [list(each) for each in members],
        "nbytes": nbytes,
        "part": part,
    }
    # 0 is a root; elsewhere it is what is meant when the key is absent.
    return _fit(
        {key: value for key, value in values.items() if value or (key, value) == ("root", 0)}
    )


def write_mark(name: str) -> bytes:
    """Return the text of the form of a mark or span."""
    return _fit({"name": name})


def to_ranges(ranks: Iterable[int]) -> list[tuple[int, int, int]]:
    """Ranks as (start, stop, step); 4,096 of a regular pattern are one of these. Nobody: (0, 0, 1)."""
    ranges: list[tuple[int, int, int]] = []
    for rank in sorted(ranks):
        start, stop, step = ranges[-1] if ranges else (rank, rank, 1)
        if ranges and stop == start + 1:  # of one rank: any step will do
            ranges[-1] = (start, rank + 1, rank - start)
        elif ranges and rank == stop - 1 + step:
            ranges[-1] = (start, rank + 1, step)
        else:
            ranges.append((rank, rank + 1, 1))
    return ranges or [(0, 0, 1)]


def read_form(text: bytes) -> Form:
    """Parse a form; ValueError for anything that `write_form` cannot have written."""
    values = _parse(text)
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key in _WORD_KEYS:
            found[key] = _typed(value, key, str)
        elif (read := _ITEMS.get(key)) is not None:
            found[key] = _listing(value, read)
        elif key == "root" and value is None:
            continue  # none, which is the same as no such key
        elif key in ("root", "nbytes"):
            found[key] = _typed(value, key, int)
        elif key == "part":
            part = _integers(value)
            if len(part) != 2:
                raise ValueError("part is not a pair")
            found[key] = part if part[1] else None
        elif key == "cut":
            found["is_cut"] = _typed(value, key, bool)
        # Any other key was written by a later version of this format: it is no error.
    return Form(**found)


# --------------------------------------------------------------------------------------- writing


def _fit(values: dict[str, Any]) -> bytes:
    text = _dump(values)
    if len(text) <= MAX_FORM_NBYTES:
        return text
    for length in _HEADS:
        text = _dump(_with_heads(values, length))
        if len(text) <= MAX_FORM_NBYTES:
            return text
    bare = _with_heads(values, 0)
    for length in _WORDS:
        words = {key: bare[key][:length] for key in _WORD_KEYS if key in bare}
        text = _dump({**bare, **words})
        if len(text) <= MAX_FORM_NBYTES:
            return text
    # Only integers beyond 64 bits come here, and no array has such a shape.
    return _dump({**words, "cut": True})


def _with_heads(values: dict[str, Any], length: int) -> dict[str, Any]:
    heads = {
        key: {
            "head": values[key][:length],
            "count": len(values[key]),
            "hash": hash_list(values[key]),
        }
        for key in _LIST_KEYS
        if len(values.get(key, ())) > length
    }
    return {**values, **heads, "cut": True}


def hash_list(items: Iterable[Any]) -> str:
    """The hash that stands for a list that was cut: equal on all ranks and in all versions."""
    return blake2b(_dump(items), digest_size=8).hexdigest()


def _dump(values: Any) -> bytes:
    # A lone surrogate (from a file name that is no UTF-8) becomes \udc80, which JSON can read.
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


# --------------------------------------------------------------------------------------- reading


def _parse(text: bytes) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError("not an object")
    return values


def _typed(value: Any, key: str, kind: type) -> Any:
    # bool is an int for Python, not here.
    if type(value) is not kind:
        raise ValueError(f"{key} is not a {kind.__name__}")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("not an integer")
    return value


def _integers(values: Any) -> tuple[int, ...]:
    return _items(values, _integer)


def _range(values: Any) -> tuple[int, ...]:
    items = _integers(values)
    if len(items) != 3 or items[2] < 1:
        raise ValueError("not a range")
    return items


def _listing(value: Any, read: Any) -> Listing[Any]:
    if type(value) is dict:
        count = _typed(value.get("count", 0), "count", int)
        digest = _typed(value.get("hash", ""), "hash", str)
        items = _items(value.get("head", []), read)
        if count <= len(items) or not digest:
            raise ValueError("a head that is no head")
        return Listing(items, count, digest)
    items = _items(value, read)
    return Listing(items, len(items))


def _items(values: Any, read: Any) -> tuple[Any, ...]:
    if type(values) is not list:
        raise ValueError("not a list")
    return tuple(read(value) for value in values)


_ITEMS: Final[dict[str, Callable[[Any], Any]]] = {
    "inputs": _integers,
    "outputs": _integers,
    "input_splits": _integer,
    "output_splits": _integer,
    "members": _range,
}
assert tuple(_ITEMS) == _LIST_KEYS
