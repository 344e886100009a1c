"""Trace and span ids that every host derives alike, so that nobody has to tell anybody.

    trace of a collective   BLAKE2b of (run, start, name of the group, "collective", seq)
    trace of an aside       the same with its kind instead of "collective": those are numbered by themselves
    trace of a message      ... "message", sender, receiver, tag and which of those it is
    span of a rank          last half of the trace XOR BLAKE2b of (rank, role)
    root span of a trace    role "root" and no rank

`start` is how often the launcher has begun the ranks: numbers begin anew with each. No id is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

COLLECTIVE: Final = "collective"
_PERSON: Final = b"distdbg"
_LAST: Final = 2**64 - 1


class Numbering:
    """What is numbered by itself: the collectives of a group, its asides of one kind, messages of a pair."""

    __slots__ = ("_base",)

    def __init__(self, run: str, start: int, group: str, *words: str | int) -> None:
        self._base = blake2b(digest_size=16, person=_PERSON)
        for word in (run, start, group, *words):
            text = str(word).encode("utf-8", "surrogateescape")
            self._base.update(len(text).to_bytes(4, "little") + text)

    def trace_id(self, seq: int) -> int:
        """The trace id of the op with this number."""
        return int.from_bytes(self.digest(seq), "big") or 1

    def digest(self, seq: int) -> bytes:
        """The same as 16 bytes."""
        state = self._base.copy()
        state.update((seq & _LAST).to_bytes(8, "little"))
        return state.digest()


def span_id(trace_id: int, rank: int, role: str = "op", number: int = 0) -> int:
    """The id of a span of one rank in a trace; `number` tells spans of the same role apart."""
    return (trace_id & _LAST) ^ _mask(rank, role, number) or 1


@lru_cache(maxsize=4096)
def _mask(rank: int, role: str, number: int) -> int:
    words = f"{rank}/{role}/{number}".encode()
    return int.from_bytes(blake2b(words, digest_size=8, person=_PERSON).digest(), "big")


def hex_ids(digests: Sequence[bytes], rank: int) -> tuple[list[str], ...]:
    """The ids of many traces as text, those of a rank's spans there, of the roots, and of the callers."""
    import numpy as np

    traces = b"".join(digests)
    halves = np.frombuffer(traces, ">u8")[1::2]
    masks = _mask(rank, "op", 0), _mask(-1, "root", 0), _mask(rank, "caller", 0)
    spans = (np.maximum(halves ^ np.uint64(mask), 1).astype(">u8") for mask in masks)
    return _to_hex(traces, 32), *(_to_hex(ids.tobytes(), 16) for ids in spans)


def _to_hex(data: bytes, digits: int) -> list[str]:
    text = data.hex()
    return [text[at : at + digits] for at in range(0, len(text), digits)]


def root_span_id(trace_id: int) -> int:
    """The id of the span that stands for the op as a whole."""
    return span_id(trace_id, -1, "root")


def low_half(trace_id: int) -> int:
    """What samplers compare: the last eight bytes."""
    return trace_id & _LAST
