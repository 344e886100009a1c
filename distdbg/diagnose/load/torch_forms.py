"""The form of an op in torch's dumps, and the count that all ranks must have alike.

What has to be equal depends on the kind: an all_gather of uneven blocks is legal and has different
inputs, but the same outputs; only the root of a scatter has an input. So each kind says what it compares,
by count of elements, as the libraries do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import prod
from typing import Any, Final

from distdbg.diagnose.load.torch_dump import Entry, integer, text
from distdbg.diagnose.load.torch_names import OpName
from distdbg.record.forms import Form, Item, Listing, Shape, hash_list

_DTYPES: Final = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_ITEM_NBYTES: Final = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2,
    "int8": 1, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip
#: Keys that torch does not write, but whoever else writes its format may.
EXTRA_KEYS: Final = frozenset(
    ("reduce_op", "root", "input_splits", "output_splits", "strides", "tag")
)
#: How much of a list of shapes is kept; a longer one has a hash of the whole.
_MAX_SHOWN: Final = 64
_MAX_SHAPES: Final = 4096
_MAX_DIMENSIONS: Final = 64
_MAX_QUICK: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Shapes:
    """A list of shapes; equal ones are one object, so that they compare at once."""

    items: tuple[Shape, ...]


_NO_SHAPES: Final = _Shapes(())


@dataclass(frozen=True, slots=True)
class _Facts:
    """All that an entry says of its arrays; ops with equal facts share a form."""

    name: OpName
    inputs: _Shapes
    outputs: _Shapes
    input_dtype: str
    output_dtype: str
    reduce_op: str
    root: int
    input_splits: tuple[int, ...]
    output_splits: tuple[int, ...]
    strides: _Shapes


@dataclass(slots=True)
class Forms:
    """The forms of a session. A list that a pickle names a thousand times is read once."""

    forms: list[Form]
    _indexes: dict[_Facts, tuple[int, int]] = field(default_factory=dict)
    _shapes: dict[int, Shape] = field(default_factory=dict)
    _lists: dict[int, _Shapes] = field(default_factory=dict)
    _quick: dict[tuple[object, ...], tuple[int, int]] = field(default_factory=dict)
    _equal: dict[tuple[Shape, ...], _Shapes] = field(default_factory=dict)

    def begin_dump(self) -> None:
        """Lists of another dump may have the addresses of those that are gone."""
        self._shapes.clear()
        self._lists.clear()

    def of(self, name: OpName, parts: Sequence[Entry]) -> tuple[int, int]:
        """Index of the form, and the fingerprint: equal on all ranks that called the same, 0 for messages."""
        quick = _quick_key(name, parts)
        found = self._quick.get(quick) if quick is not None else None
        if found is None:
            found = self._index(self._facts(name, parts))
            if quick is not None:
                self._quick[quick] = found
        return found

    def _index(self, facts: _Facts) -> tuple[int, int]:
        found = self._indexes.get(facts)
        if found is None:
            self.forms.append(_form(facts))
            found = self._indexes[facts] = len(self.forms) - 1, _fingerprint(facts)
        return found

    def _facts(self, name: OpName, parts: Sequence[Entry]) -> _Facts:
        entry = parts[0]
        return _Facts(
            name=name,
            inputs=self._all_shapes(parts, "input_sizes"),
            outputs=self._all_shapes(parts, "output_sizes"),
            input_dtype=_dtype(parts, "input_dtypes"),
            output_dtype=_dtype(parts, "output_dtypes"),
            reduce_op=text(entry.get("reduce_op")),
            root=integer(entry.get("root"), -1),
            input_splits=self._shape(entry.get("input_splits"), _MAX_SHAPES),
            output_splits=self._shape(entry.get("output_splits"), _MAX_SHAPES),
            strides=self._all_shapes(parts, "strides"),
        )

    def _all_shapes(self, parts: Sequence[Entry], key: str) -> _Shapes:
        if len(parts) == 1:
            return self._list(parts[0].get(key))
        shapes: list[Shape] = []
        for part in parts:
            shapes += self._list(part.get(key)).items
            if len(shapes) > _MAX_SHAPES:
                break
        return self._one(tuple(shapes[:_MAX_SHAPES]))

    def _list(self, value: object) -> _Shapes:
        """[[4], [2, 3]]; what is none of it is left out."""
        if not isinstance(value, (list, tuple)):
            return _NO_SHAPES
        found = self._lists.get(id(value))
        if found is None:
            found = self._lists[id(value)] = self._one(
                tuple(
                    self._shape(shape, _MAX_DIMENSIONS)
                    for shape in value[:_MAX_SHAPES]
                    if isinstance(shape, (list, tuple))
                )
            )
        return found

    def _one(self, items: tuple[Shape, ...]) -> _Shapes:
        return self._equal.setdefault(items, _Shapes(items)) if items else _NO_SHAPES

    def _shape(self, value: object, most: int) -> Shape:
        if not isinstance(value, (list, tuple)):
            return ()
        found = self._shapes.get(id(value))
        if found is None:
            found = self._shapes[id(value)] = tuple(integer(length, -1) for length in value[:most])
        return found


def _quick_key(name: OpName, parts: Sequence[Entry]) -> tuple[object, ...] | None:
    """For what nearly all ops are: one array in, one out, and no key beyond torch's."""
    entry = parts[0]
    if len(parts) > 1 or not EXTRA_KEYS.isdisjoint(entry):
        return None
    key: list[object] = [name]
    for lists in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes"):
        value = entry.get(lists)
        if type(value) is not list or len(value) != 1:
            return None
        only = value[0]
        if type(only) is list:
            if len(only) > _MAX_QUICK or any(type(length) is not int for length in only):
                return None
            key.append(tuple(only))
        elif type(only) is str:
            key.append(only)
        else:
            return None
    return tuple(key)


def _form(facts: _Facts) -> Form:
    dtype = facts.input_dtype or facts.output_dtype
    counted = facts.inputs.items or facts.outputs.items
    return Form(
        name=facts.name.name or facts.name.kind,
        kind=facts.name.kind,
        dtype=dtype,
        op=facts.reduce_op,
        root=None if facts.root < 0 else facts.root,
        inputs=_listing(facts.inputs.items),
        outputs=_listing(facts.outputs.items),
        input_splits=_listing(facts.input_splits),
        output_splits=_listing(facts.output_splits),
        nbytes=sum(prod(shape) for shape in counted) * _ITEM_NBYTES.get(dtype, 0),
    )


def _fingerprint(facts: _Facts) -> int:
    if facts.name.is_message:
        return 0
    words = [
        facts.name.kind,
        *_must_equal(facts),
        _dtype_to_compare(facts),
        facts.reduce_op,
        facts.root,
        facts.strides.items,
    ]
    digest = blake2b(repr(words).encode("utf-8", "backslashreplace"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def _must_equal(facts: _Facts) -> Iterable[object]:
    inputs = [prod(shape) for shape in facts.inputs.items]
    outputs = [prod(shape) for shape in facts.outputs.items]
    match facts.name.kind:
        case "all_reduce" | "reduce" | "gather":
            return (inputs,)
        case "broadcast":
            # The parts of an uneven all_gather have an input only on their root.
            return (outputs or inputs,)
        case "all_gather":
            # A list of blocks may be uneven; then all ranks have the same list.
            return (sum(outputs), len(set(outputs)) > 1 or sum(inputs))
        case "reduce_scatter":
            return (sum(inputs), len(set(inputs)) > 1 or sum(outputs))
        case "scatter":
            return (outputs,)
        case _:
            return ()  # a barrier has nothing, an all_to_all what the splits say, others are unknown


def _dtype_to_compare(facts: _Facts) -> str:
    match facts.name.kind:
        case "barrier":
            return ""
        case "scatter" | "broadcast":
            return facts.output_dtype or facts.input_dtype
        case _:
            return facts.input_dtype or facts.output_dtype


def _dtype(parts: Sequence[Entry], key: str) -> str:
    named: set[str] = set()
    for part in parts[:_MAX_SHAPES]:
        given: Any = part.get(key)
        if isinstance(given, (list, tuple)):
            words = (text(word) for word in given[:_MAX_SHOWN])
            named.update(_DTYPES.get(word, word.lower()) for word in words)
    return "+".join(sorted(named))[:64]


def _listing(items: tuple[Item, ...]) -> Listing[Item]:
    if len(items) <= _MAX_SHOWN:
        return Listing(items, len(items))
    return Listing(items[:_MAX_SHOWN], len(items), hash_list(items))
