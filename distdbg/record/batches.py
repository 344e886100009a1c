"""Whether a rank ran out of batches before others did, by the marks and calls in their records. Pure.

`dist.batches`, a disabled `Join` and torch's DataLoader mark each batch and the end of a loop. A rank ran out
first when its loop ended after op #p of a group, having had n batches, while another rank began batch n + 1
of the same loop after the same op, is still in the loop, and has called more. Nothing less is a proof: where
the record of the other rank does not reach back to op #p, or the rank has joined, or has made no collective
in that loop, nothing is said. Where the ranks are in later epochs by now, `passages.py` finds the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from distdbg.errors import format_ranks
from distdbg.record.entries import Event, MarkEntry
from distdbg.record.known_marks import (
    BATCH,
    JOIN_OUT_OF_BATCHES,
    JOIN_STEP,
    JOINED,
    OUT_OF_BATCHES,
    STEP,
)
from distdbg.record.passages import LoopMark, LoopPassage, LoopTrack, find_uneven, passages_of

#: The backend of a group of torch.distributed, where that is watched: 'torch-gloo'.
_OF_TORCH: Final = "torch-"
#: In what a finding says where nothing shows which call was skipped; the marks do.
UNKNOWN: Final = "cannot be distinguished"
_BEGINS: Final = frozenset((BATCH, JOIN_STEP))
_ENDS: Final = frozenset((OUT_OF_BATCHES, JOIN_OUT_OF_BATCHES))
_OTHERS: Final = frozenset((JOINED, STEP))
_JOIN: Final = "Join"
#: The kind of the error by which Join ends all ranks.
JOIN_ENDED: Final = "Join"


@dataclass(frozen=True, slots=True)
class RanOut:
    """Which ranks had fewer batches than others, in the same loop."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    """The ranks that began one more."""
    count: int
    """How many batches they had."""
    step: int
    """What the others called the step that was missing: by a mark 'step', else the batch's number."""
    at_ns: Mapping[int, int]
    """When each ran out, by its own clock."""
    had: str = ""
    """How many batches the others had, if it was in an earlier epoch: '5'."""

    @property
    def head(self) -> str:
        """'rank 1 ran out of batches at step 4'."""
        when = " of an earlier epoch" if self.had else ""
        return f"{name_ranks(self.ranks)} ran out of batches at step {self.step}{when}"

    @property
    def rest(self) -> str:
        """', rank 0 went on', or of an earlier epoch ' (3 batches, rank 0 had 5)'."""
        if self.had:
            return f" ({self.count} batches, {name_ranks(self.others)} had {self.had})"
        return f", {name_ranks(self.others)} went on"


def name_join(backend: str) -> str:
    """The Join of a job with groups on this backend."""
    is_torchs = backend.startswith(_OF_TORCH)
    return "torch.distributed.algorithms.join.Join" if is_torchs else "dist.Join"


def hint_for(backend: str) -> str:
    """What to do about it, in a job with groups on this backend."""
    joining = name_join(backend)
    return f"give all ranks as many batches, or let those that have none left join: {joining}"


def name_ranks(ranks: Sequence[int]) -> str:
    """'rank 2', 'ranks 0-1,3'."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def to_said(events: Iterable[Event]) -> list[LoopMark]:
    """Keep the marks of a rank that are about loops and steps."""
    found = []
    for event in events:
        if not isinstance(event, MarkEntry) or event.name is None or event.value is None:
            continue
        if event.name in _BEGINS or event.name in _ENDS or event.name in _OTHERS:
            is_join = event.name in (JOIN_STEP, JOIN_OUT_OF_BATCHES)
            site = event.site
            loop = _JOIN if is_join else f"{site.file}:{site.line}" if site is not None else ""
            found.append(LoopMark(event.name, int(event.value), event.issued_ns, loop))
    return found


def find_ran_out(tracks: Mapping[int, LoopTrack]) -> RanOut | None:
    """Return who ran out first among these ranks; None where the records do not prove that somebody did."""
    passages = {rank: passages_of(track) for rank, track in tracks.items()}
    earlier = _find_earlier(tracks, passages)
    if earlier is not None:
        return earlier
    found: dict[int, LoopMark] = {}
    ahead: dict[int, int] = {}
    for rank, track in tracks.items():
        in_step = {each.loop for each in passages[rank] if each.has_calls}
        for end in _ended(track):
            if end.loop not in in_step:
                continue  # nobody waits for a loop without collectives
            seq = track.seq_at(end.at_ns)
            steps = {
                other: step
                for other, its in tracks.items()
                if other != rank and (step := _step_beyond(its, end, seq)) is not None
            }
            if steps:
                found[rank] = end
                ahead |= steps
                break
    if not found:
        return None
    count = min(mark.value for mark in found.values())
    ranks = tuple(sorted(rank for rank, mark in found.items() if mark.value == count))
    return RanOut(
        ranks=ranks,
        others=tuple(sorted(ahead)),
        count=count,
        step=min(ahead.values()),
        at_ns={rank: found[rank].at_ns for rank in ranks},
    )


def _find_earlier(
    tracks: Mapping[int, LoopTrack], passages: Mapping[int, Sequence[LoopPassage]]
) -> RanOut | None:
    """Return who ran out in an epoch before the one that the ranks are in now."""
    found = find_uneven(tracks, passages)
    if found is None:
        return None
    out, more = found
    count = next(iter(out.values())).count
    shortest = min(more.values(), key=lambda each: each.count)
    return RanOut(
        ranks=tuple(sorted(out)),
        others=tuple(sorted(more)),
        count=count,
        step=min(_named(tracks[rank], each.batches[count + 1]) for rank, each in more.items()),
        at_ns={rank: each.end.at_ns for rank, each in sorted(out.items()) if each.end is not None},
        had=str(shortest.count) if shortest.end is not None else f"at least {shortest.count}",
    )


def _ended(track: LoopTrack) -> list[LoopMark]:
    """The ends of the loops that a rank has not begun again, the last first; none once it has joined."""
    ends: list[LoopMark] = []
    begun: set[str] = set()
    for mark in reversed(track.marks):
        if mark.name == JOINED:
            break
        if mark.name == STEP:
            continue
        if mark.name in _ENDS and mark.loop not in begun:
            ends.append(mark)
        begun.add(mark.loop)
    return ends


def _step_beyond(track: LoopTrack, end: LoopMark, seq: int) -> int | None:
    """The step of a rank's batch behind the last one of another rank, which ended after call `seq`."""
    seqs = track.seqs
    if not seqs or seqs[0] > seq + 1 or seqs[-1] <= seq:
        return None  # it does not reach back, or has called no more
    of_loop = [at for at, mark in enumerate(track.marks) if mark.loop == end.loop]
    if not of_loop or track.marks[of_loop[-1]].name in _ENDS:
        return None  # its own loop has ended
    for at in of_loop:
        mark = track.marks[at]
        if track.seq_at(mark.at_ns) < seq:
            continue
        if mark.name in _ENDS or mark.value > end.value:
            is_next = mark.name in _BEGINS and mark.value == end.value + 1
            return _named(track, at) if is_next else None
    return None


def _named(track: LoopTrack, at: int) -> int:
    """What the program called the step of a batch: by a mark before its next call, else its number."""
    batch = track.marks[at]
    seq = track.seq_at(batch.at_ns)
    for mark in track.marks[at + 1 :]:
        if mark.name != STEP or track.seq_at(mark.at_ns) != seq:
            break
        return mark.value
    return batch.value
