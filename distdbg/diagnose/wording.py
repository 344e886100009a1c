"""How findings write ranks, places and durations: one way for all of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from distdbg.diagnose.ops import NEVER, OpRef
from distdbg.diagnose.session import Session
from distdbg.errors import format_ranks
from distdbg.record.durations import duration_text
from distdbg.record.printable import file_name
from distdbg.record.recorded_frame import RecordedFrame

#: Letters of a first line.
MAX_LINE: Final = 120
_CUT: Final = " ..."
#: Where a clause ends and the next one begins.
_CLAUSE: Final = re.compile(r"[;,:] | \(| while | but | and (?=rank)")


def say_ranks(ranks: Iterable[int], limit: int = 8) -> str:
    """'rank 3', 'ranks 0-2,5'; 'no rank'."""
    ordered = sorted(set(ranks))
    if not ordered:
        return "no rank"
    return f"rank {ordered[0]}" if len(ordered) == 1 else f"ranks {format_ranks(ordered, limit)}"


def verb(ranks: Sequence[int], singular: str, plural: str) -> str:
    """The form that goes with so many ranks."""
    return singular if len(ranks) == 1 else plural


def say_site(frame: RecordedFrame | None) -> str:
    """'train.py:88 (step)', without the folders; ''."""
    if frame is None:
        return ""
    return f"{file_name(frame.file) or '?'}:{frame.line} ({frame.function})"


def short_site(text: str) -> str:
    """Shorten a place that came as text: '/home/me/train.py:88 (step)'."""
    head, space, tail = text.partition(" (")
    return file_name(head) + space + tail


def site_of(session: Session, op: OpRef) -> str:
    """Where an op was called, as messages have it; ''."""
    return say_site(session.site_of(op))


def say_op(session: Session, op: OpRef) -> str:
    """'all_reduce #7 on group 'dp' (DDP bucket 0 of fc) at train.py:88 (step)'."""
    comm, site = session.comms[session.ranks[op.rank].ops.comm[op.at]], site_of(session, op)
    return session.name_of(op) + (f" ({comm})" if comm else "") + (f" at {site}" if site else "")


def say_s(ns: int) -> str:
    """'12 s', '20 ms', '3 h 30 min'."""
    return duration_text(max(ns, 0) / 1e9)


def fit(head: str, *tails: str) -> str:
    """A first line: of the tails as many as there is room for, in order; each stands for itself.

    A head that is too long is cut at the end of a clause, else of a word, and ' ...' says so.
    """
    line = head
    for tail in tails:
        if len(line) + len(tail) <= MAX_LINE:
            line += tail
    return line if len(line) <= MAX_LINE else cut(line, MAX_LINE)


def cut(line: str, most: int) -> str:
    """Cut a text to at most so many letters where a clause ends, so that what is left is true by itself."""
    if len(line) <= most:
        return line
    room = line[: most - len(_CUT) + 1]
    ends = [match.start() for match in _CLAUSE.finditer(room)]
    words = room.rfind(" ")
    end = next((end for end in reversed(ends) if end >= most // 3), words if words > 0 else -1)
    return (room[:-1] if end < 0 else line[:end].rstrip(" ,;:(")) + _CUT


def known_ns(time_ns: int) -> int | None:
    """A time of a finding; None for one that nobody knows."""
    return None if time_ns == NEVER else time_ns
