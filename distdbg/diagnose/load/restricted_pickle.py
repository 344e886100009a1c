"""Reads untrusted pickles of plain values: numbers, text, lists, tuples, dicts, and nothing else.

A pickle is a program. One that wants a class or function is refused with the name of what it wanted,
before anything of it has run. So is one that claims more than it brings: the library's reader makes room
for a memo of whatever size a pickle names, which a file of ten bytes can use to take all memory.

How: the opcodes are walked without running them. Those of plain values have a fixed length but for text
and long integers, so a regular expression passes whole runs of them; then the library reads what is
known to be harmless.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Final, NoReturn

from distdbg.errors import RecordError

#: A larger file is not read. A full ring of torch's with all its stacks has some 3 MB.
MAX_PICKLE_NBYTES: Final = 2**28

#: Opcodes that take no more bytes than written here. A memo index has at most 22 bits.
_PLAIN: Final = re.compile(
    rb"""(?:
        [()\]}Nlutdesa0-2]     # mark, empty tuple, list, dict, None, list, setitems, ..., pop, dup
      | [\x85-\x89\x94]        # tuples of 1 to 3, True, False, memoize
      | \x80[\x00-\x05]        # protocol
      | \x95.{8}               # frame: says how much follows, and is not believed
      | [Kqh].                 # 1-byte integer, put, get
      | M..
      | J.{4}
      | [rj]..[\x00-\x3f]\x00  # long put, long get
      | G.{8}
    )*+""",
    re.VERBOSE | re.DOTALL,
)
#: Opcodes with a length: its bytes.
_COUNTED: Final = {
    ord("X"): 4,  # text
    0x8C: 1,
    0x8D: 8,
    0x8A: 1,  # integer
    ord("T"): 4,  # bytes of old protocols, read as text
    ord("U"): 1,
    ord("C"): 1,  # bytes
    ord("B"): 4,
}
_STOP: Final = ord(".")
#: Opcodes that fetch something by its name, or by a number that stands for one.
_WANTS: Final = frozenset(b"c\x93i\x82\x83\x84PQ")


def read_plain(data: bytes, path: str) -> object:
    """Return the value; RecordError for what is damaged, or more than plain values."""
    at = _walk(data)
    if at >= len(data) or data[at] != _STOP:
        _refuse(data, at, path)
    return _load(data, path)


def _walk(data: bytes) -> int:
    """Where the first opcode is that is not of plain values: the stop, in a good pickle."""
    at, end = 0, len(data)
    while at < end:
        found = _PLAIN.match(data, at)
        assert found is not None  # it matches nothing at least
        at = found.end()
        if at >= end:
            break
        width = _COUNTED.get(data[at])
        if width is None:
            break
        count = int.from_bytes(data[at + 1 : at + 1 + width], "little")
        if at + 1 + width + count > end:
            return end
        at += 1 + width + count
    return at


def _refuse(data: bytes, at: int, path: str) -> NoReturn:
    if at >= len(data):
        raise RecordError(f"{path} is a truncated pickle", path=path, offset=at)
    if data[at] in _WANTS:
        # What is before this opcode is harmless: the reader comes as far as the name.
        _load(data[: at + 600], path)
    raise RecordError(
        f"{path} is not a pickle of plain values: opcode {bytes(data[at : at + 1])!r} at {at}",
        path=path,
        offset=at,
    )


def _load(data: bytes, path: str) -> object:
    try:
        return _Reader(io.BytesIO(data)).load()
    except _WantedError as wanted:
        raise RecordError(
            f"{path} tries to load {wanted}, which a dump never needs",
            path=path,
            details=["none of it was run"],
            hint="this file may be an attack: ask whoever wrote it",
        ) from None
    except RecursionError:
        raise RecordError(f"{path} is a pickle nested too deeply", path=path) from None
    except (
        pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError,
        AttributeError, OverflowError, MemoryError,
    ) as error:  # fmt: skip
        raise RecordError(f"{path} is a damaged pickle: {error}", path=path) from None


class _WantedError(Exception):
    """The name that a pickle asked for."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise _WantedError(f"{module}.{name}")

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise _WantedError("an object by its number")
