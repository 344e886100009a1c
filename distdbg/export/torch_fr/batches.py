"""A pickle of a dict of which one value is a list, written while the list is made. Plain values alone.

    {..., "entries": [      PROTO 2, the dict as `pickle` writes it, the key, an empty list
      batch, batch, ...     each: MARK, items, APPENDS
    ], ...}                 SETITEM, what else the dict has: MARK, keys and values, SETITEMS; STOP

A pickle is a program for a machine with a stack, so what adds items to the list on top of the stack can be
taken from the pickle of a list of its own: all after its PROTO, EMPTY_LIST and BINPUT 0; likewise for a
dict. Each part counts its memo from 0 and reads only what it has put there itself, so that parts know
nothing of each other.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, BinaryIO, Final

#: As torch's own dumps; every reader has it.
_PROTOCOL: Final = 2
_HEAD: Final = b"\x80\x02"
_EMPTY_LIST: Final = b"]"
_LIST_HEAD: Final = _HEAD + b"]q\x00"
_DICT_HEAD: Final = _HEAD + b"}q\x00"
_SETITEM: Final = b"s"
_STOP: Final = b"."
_BATCH: Final = 1000


def write_pickle(
    output: BinaryIO,
    head: Mapping[str, Any],
    key: str,
    items: Iterable[Mapping[str, Any]],
    tail: Callable[[], Mapping[str, Any]],
) -> None:
    """Write the pickle of `{**head, key: [*items], **tail()}`; `tail` is asked when `items` are over."""
    output.write(_dump(dict(head)))
    output.write(_dump(key).removeprefix(_HEAD) + _EMPTY_LIST)
    rest = iter(items)
    while batch := list(islice(rest, _BATCH)):
        output.write(_without(_LIST_HEAD, _dump(batch)))
    output.write(_SETITEM + _without(_DICT_HEAD, _dump(dict(tail()))) + _STOP)


def _dump(value: Any) -> bytes:
    return pickle.dumps(value, _PROTOCOL).removesuffix(_STOP)


def _without(head: bytes, data: bytes) -> bytes:
    assert data.startswith(head)
    return data[len(head) :]
