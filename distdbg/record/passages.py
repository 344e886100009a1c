"""Loops over batches that ranks go through several times: the first time that their numbers differ. Pure.

A passage is one time through a loop. Ranks begin one together where both begin it after the same op of their
group. Where one of them has fewer batches then, and goes on to its next passage while another makes a
collective of a batch more, all later ops meet others than they should: the hang comes epochs later, and
this is where it began. It is none where later passages begin together again: ranks made up for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from distdbg.record.known_marks import (
    BATCH,
    JOIN_OUT_OF_BATCHES,
    JOIN_STEP,
    JOINED,
    OUT_OF_BATCHES,
)


@dataclass(slots=True)
class LoopPassage:
    """One time of one rank through a loop."""

    loop: str
    start: int
    """The number of the last call before it."""
    is_whole: bool
    """Whether the record reaches back to its begin."""
    batches: dict[int, int] = field(default_factory=dict)
    """By number: which of the rank's marks began it."""
    end: LoopMark | None = None
    end_seq: int = 0
    """The last call before its end, or of all where it goes on."""
    has_joined: bool = False
    next: LoopPassage | None = None

    @property
    def count(self) -> int:
        """How many batches it had so far."""
        return max(self.batches, default=0)

    @property
    def has_calls(self) -> bool:
        """Whether the rank made a collective in it."""
        return self.end_seq > self.start


def passages_of(track: LoopTrack) -> list[LoopPassage]:
    """List the passages in the order of their begin."""
    found: list[LoopPassage] = []
    going: dict[str, LoopPassage] = {}
    latest: dict[str, LoopPassage] = {}
    ended: LoopPassage | None = None

    def begin(loop: str, seq: int, is_whole: bool) -> LoopPassage:
        made = going[loop] = LoopPassage(loop, seq, is_whole)
        if loop in latest:
            latest[loop].next = made
        latest[loop] = made
        found.append(made)
        return made

    for at, mark in enumerate(track.marks):
        seq = track.seq_at(mark.at_ns)
        if mark.name in (BATCH, JOIN_STEP):
            passage = going.get(mark.loop)
            if passage is None or mark.value == 1:
                passage = begin(mark.loop, seq, mark.value == 1)
            passage.batches[mark.value] = at
        elif mark.name in (OUT_OF_BATCHES, JOIN_OUT_OF_BATCHES):
            passage = going.get(mark.loop) or begin(mark.loop, seq, mark.value == 0)
            passage.end, passage.end_seq = mark, seq
            del going[mark.loop]
            ended = passage
        elif mark.name == JOINED and ended is not None:
            ended.has_joined = True
    for passage in going.values():
        passage.end_seq = track.seqs[-1] if track.seqs else 0
    return found


def find_uneven(
    tracks: Mapping[int, LoopTrack], passages: Mapping[int, Sequence[LoopPassage]]
) -> tuple[dict[int, LoopPassage], dict[int, LoopPassage]] | None:
    """The first passages that began together and had different numbers: of who had fewest, and more."""
    together: dict[tuple[int, str], list[tuple[int, LoopPassage]]] = defaultdict(list)
    for rank, its in passages.items():
        for passage in its:
            if passage.is_whole and tracks[rank].seqs:
                together[passage.start, passage.loop].append((rank, passage))
    for _, members in sorted(together.items()):
        out = {rank: each for rank, each in members if _went_on(each)}
        if not out:
            continue
        count = min(each.count for each in out.values())
        fewest = {rank: each for rank, each in out.items() if each.count == count}
        first = next(iter(fewest.values()))
        more = {rank: each for rank, each in members if _is_beyond(each, first, tracks[rank])}
        if more and not any(_meet_again(first, each) for each in more.values()):
            return fewest, more
    return None


def _went_on(passage: LoopPassage) -> bool:
    """Whether it ended for want of batches, and the rank is in the loop again."""
    return (
        passage.end is not None
        and passage.has_calls
        and not passage.has_joined
        and passage.next is not None
    )


def _is_beyond(passage: LoopPassage, short: LoopPassage, track: LoopTrack) -> bool:
    """Whether it has a batch more after the op that the other ended with, and a collective after that."""
    at = passage.batches.get(short.count + 1)
    if at is None or passage.end_seq <= short.end_seq:
        return False
    return track.seq_at(track.marks[at].at_ns) == short.end_seq


def _meet_again(one: LoopPassage | None, other: LoopPassage | None) -> bool:
    """Whether a later passage begins together."""
    while one is not None and other is not None:
        one, other = one.next, other.next
        if one is not None and other is not None and one.start == other.start:
            return True
    return False


@dataclass(frozen=True, slots=True)
class LoopMark:
    """One mark of a rank."""

    name: str
    value: int
    at_ns: int
    loop: str
    """What is the same for all marks of one loop: where it is."""


@dataclass(frozen=True, slots=True)
class LoopTrack:
    """What the record of one rank has of its loops, and of its calls on one group; both in order."""

    marks: Sequence[LoopMark]
    seqs: Sequence[int]
    """Numbers of the group's collectives."""
    issued_ns: Sequence[int]

    def seq_at(self, at_ns: int) -> int:
        """The number of the last call before a moment; 0 for none.

        The ring has marks and calls in one order: what is before its first call is right before that one.
        """
        index = bisect_right(self.issued_ns, at_ns)
        if index:
            return self.seqs[index - 1]
        return self.seqs[0] - 1 if self.seqs else 0
