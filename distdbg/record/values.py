"""What the variables of a program held where it failed: numbers, sizes and names of files, no other texts.

    step = 14, batches = 15, self.patience = 3, grads is 6 long, loss float32[4, 8], config["lr"] = 0.1
    self.coords = (0, 1)         a few whole numbers
    path = '.../part-014.npz'    what is a pathlib.Path, or a text in a variable that is named like a file
    the keys of params in order 3f9c of 81bb     two short hashes: of their order, and of which they are

They go into the error file, so that a report shows in what two ranks differ. No code of the program runs:
values are looked at by their exact type alone.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from traceback import walk_tb
from types import FrameType, MemberDescriptorType
from typing import Any, Final

from distdbg.record.libraries import is_library

_OWN: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: The innermost frames of a stack; the variables of one frame, in the order in which they were bound.
_MAX_FRAMES: Final = 6
_MAX_VALUES: Final = 48
_MAX_LETTERS: Final = 60
#: Keys of a dict: larger ones are data.
_MAX_ENTRIES: Final = 24
#: A longer number is an id, or a hash.
_MAX_BITS: Final = 64
_SIZED: Final = (list, tuple, dict, set, frozenset, range)
#: Keys whose order is kept, since a loop may see them in any; a larger dict is data.
_UNORDERED: Final = (dict, set, frozenset)
_MAX_KEYS: Final = 4096
_MAX_ORDERS: Final = 8
#: A longer one is data.
_MAX_KEY: Final = 256
#: How their name begins among the values.
KEYS_OF: Final = "the keys of "
#: A place in a mesh, a shape.
_MAX_TUPLE: Final = 4
#: Numbers in these are settings, as in an object of the program.
_SETTINGS: Final = (("types", "SimpleNamespace"), ("argparse", "Namespace"))
_PATHS: Final = ("PosixPath", "PurePosixPath")
#: How a variable is named that holds the name of a file; and what no such name has in it.
_IS_FILE: Final = re.compile(
    r"(?:^|_)(?:path|file|filename|fname|folder|dir|directory|checkpoint|shard)$"
)
_NO_FILE: Final = re.compile(r"://|[@\s\x00-\x1f]")
_SCALARS: Final = frozenset(
    ("bool", "bool_", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
     "uint16", "uint32", "uint64")
)  # fmt: skip
_ARRAYS: Final = (
    ("numpy", "ndarray"),
    ("cupy", "ndarray"),
    ("torch", "Tensor"),
    ("torch", "Parameter"),
)


def values_at(error: BaseException) -> list[dict[str, Any]]:
    """Return the values in the program's frames that an error came through, the innermost first."""
    found: list[dict[str, Any]] = []
    for frame, line in reversed([*walk_tb(error.__traceback__)]):
        code = frame.f_code
        if code.co_filename.startswith(_OWN) or is_library(code.co_filename):
            continue
        values: dict[str, str] = {}
        with suppress(Exception):  # of a class that answers questions about itself with errors
            values.update(_all_of(frame))
        if values:
            found.append({"file": code.co_filename, "line": line, "values": values})
        if len(found) == _MAX_FRAMES:
            break
    return found


def _all_of(frame: FrameType) -> Iterator[tuple[str, str]]:
    """The frame's variables; and what its code uses of its objects and its module."""
    local, used, count = frame.f_locals, frozenset(frame.f_code.co_names), 0
    module = str(frame.f_globals.get("__name__", ""))
    own = [
        (f"{name}.", _attributes(value))
        for name, value in [*local.items()]
        if _is_own(value, module)
    ]
    written = frozenset(one for one in frame.f_code.co_consts if type(one) is str)
    for name, value in _entries(local, written):
        yield name, value
        count += 1
    yield from islice(
        (one for prefix, known in (("", local), *own) for one in _orders(prefix, known)),
        _MAX_ORDERS,
    )
    for prefix, known in (("", local), *own, ("", frame.f_globals)):
        for name, value in [*known.items()]:
            if known is not local and name not in used:
                continue
            text = say_value(value) or _say_path(str(name), value)
            if text and isinstance(name, str) and not name.startswith("__"):
                yield prefix + name, text
                count += 1
            if count == _MAX_VALUES:
                return


def _entries(local: Mapping[str, object], keys: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Numbers in dicts whose keys the program's own code has written down: names of settings."""
    count = 0
    for name, value in [*local.items()]:
        if type(value) is not dict or len(value) > _MAX_ENTRIES:
            continue
        for key, entry in [*value.items()]:
            if type(key) is str and key in keys and type(entry) in (bool, int, float):
                yield f'{name}["{key}"]', say_value(entry)
                count += 1
            if count == _MAX_ENTRIES:
                return


def _orders(prefix: str, known: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """In which order a loop over a dict or a set goes: it may be another one on each rank."""
    for name, value in [*known.items()]:
        if not isinstance(value, _UNORDERED) or type(value) not in _UNORDERED:
            continue
        keys = [*value] if 1 < len(value) <= _MAX_KEYS else [None]
        if all(map(_is_key, keys)):
            yield (
                f"{KEYS_OF}{prefix}{name}",
                f"in order {_short(keys)} of {_short(sorted(map(repr, keys)))}",
            )


def _is_key(one: object) -> bool:
    if type(one) is str:
        return len(one) <= _MAX_KEY
    return type(one) is int and one.bit_length() <= _MAX_BITS


def _short(keys: list[Any]) -> str:
    return hashlib.blake2b(repr(keys).encode(errors="replace"), digest_size=2).hexdigest()


def _is_own(value: object, name: str) -> bool:
    """Whether it is an object of a class of the program; `name` is the module that uses it."""
    of = type(value).__module__
    if (of, type(value).__name__) in _SETTINGS:
        return True
    if of == name:  # __main__ may be another module by now
        return True
    file = getattr(sys.modules.get(of), "__file__", None)
    return isinstance(file, str) and not file.startswith(_OWN) and not is_library(file)


def _attributes(value: object) -> Mapping[str, object]:
    """Those that are stored in it: nothing is computed."""
    kind = type(value)
    if isinstance(value, tuple):
        fields = kind.__dict__.get("_fields", ())
        return dict(zip(fields, tuple(value), strict=False)) if type(fields) is tuple else {}
    found: dict[str, object] = {}
    for name, slot in [item for one in kind.__mro__ for item in vars(one).items()]:
        if type(slot) is MemberDescriptorType:
            with suppress(AttributeError):  # not set
                found[name] = slot.__get__(value)
    with suppress(AttributeError):
        found |= object.__getattribute__(value, "__dict__")
    return found


def say_value(value: object) -> str:
    """'= 15', 'is 6 long', 'float32[4, 8]'; '' for what is not shown."""
    kind = type(value)
    if value is None or kind is bool:
        return f"= {value}"
    if kind is int:
        return f"= {value}" if int(value).bit_length() <= _MAX_BITS else ""  # type: ignore[call-overload]
    if kind is float:
        return f"= {value:.6g}"
    if kind.__module__ == "numpy" and kind.__name__ in _SCALARS:
        return say_value(value.item())  # type: ignore[attr-defined]
    if isinstance(value, tuple) and kind is tuple and _is_place(value):
        return f"= {value}"
    if kind in _SIZED:
        return f"is {len(value)} long"  # type: ignore[arg-type]
    return _say_array(value)


def _say_path(name: str, value: object) -> str:
    """The end of a file's name, which says most: "= '...clicks/part-014.npz'"; '' for other texts."""
    if type(value).__module__.partition(".")[0] == "pathlib" and type(value).__name__ in _PATHS:
        text = str(value)
    elif type(value) is str and _IS_FILE.search(name) and not _NO_FILE.search(value):
        text = value
    else:
        return ""
    most = _MAX_LETTERS - len("= '...'")
    short = text if len(text) <= most else f"...{text[-most:]}"
    return f"= {short!r}" if text else ""


def _is_place(value: tuple[object, ...]) -> bool:
    is_short = 0 < len(value) <= _MAX_TUPLE
    return is_short and all(type(one) is int and one.bit_length() <= _MAX_BITS for one in value)


def _say_array(value: Any) -> str:
    kind = type(value)
    if (kind.__module__.partition(".")[0], kind.__name__) not in _ARRAYS:
        return ""
    try:
        dtype = str(value.dtype).rpartition(".")[2]
        text = f"{dtype}[{', '.join(str(int(one)) for one in value.shape)}]"
    except (RuntimeError, TypeError, ValueError):  # of a tensor that has no shape yet
        return ""
    return text if len(text) <= _MAX_LETTERS else ""
