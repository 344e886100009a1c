"""Trace and span ids that every host derives alike, so that nobody has to tell anybody.

    trace of a collective   BLAKE2b of (run, start, name of the group, "collective", seq)
    trace of an aside       the same with its kind instead of "collective": those are numbered by themselves
    trace of a message      ... "message", sender, receiver, tag and which of those it is
    span of a rank          BLAKE2b of the trace and (rank, role)
    root span of a trace    role "root" and no rank

`start` is how often the launcher has begun the ranks: numbers begin anew with each. No id is 0.
"""

from __future__ import annotations

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
        """Of the op with this number."""
        state = self._base.copy()
        state.update((seq & _LAST).to_bytes(8, "little"))
        return int.from_bytes(state.digest(), "big") or 1


def span_id(trace_id: int, rank: int, role: str = "op", number: int = 0) -> int:
    """Of what one rank did there; `number` tells apart what has the same role."""
    words = f"{rank}/{role}/{number}".encode()
    state = blake2b(trace_id.to_bytes(16, "big") + words, digest_size=8, person=_PERSON)
    return int.from_bytes(state.digest(), "big") or 1


def root_span_id(trace_id: int) -> int:
    """Of the span that stands for the op as a whole."""
    return span_id(trace_id, -1, "root")


def low_half(trace_id: int) -> int:
    """What samplers compare: the last eight bytes."""
    return trace_id & _LAST
