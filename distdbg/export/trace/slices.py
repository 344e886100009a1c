"""What a rank did as slices on tracks, for any format of traces.

    rank 3 n14                       a process
      dp                             a track for the collectives of each group
      dp: messages                   for what goes between two ranks
      dp: other waits                new_group, monitored_barrier, breakpoints
      spans, marks, findings

Each op is one slice from its issue to its end. What of it was waiting until all ranks had come is a slice
within it that names the last of them; of a recv that waited, what came then is one as well, as the arrow from
its send ends there. Slices of one track may be in flight at once: then they have lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE
from distdbg.export.run_clock import to_run_clock
from distdbg.export.trace.lanes import OPEN, find_lanes
from distdbg.record.format import Aside, Flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distdbg.diagnose.session import RankLog, Session
    from distdbg.export.reading import RunStart
    from distdbg.export.trace.arrivals import Arrivals

#: A wait that is shorter is in the arguments of its op alone.
MIN_WAIT_NS: Final = 1_000
#: `waits_for` where no one rank can be named.
SOMEBODY: Final = -1
_FAMILIES: Final = ("", ": messages", ": other waits")
_U64: Final = np.uint64


_PER_START: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class TraceTrack:
    """One track of a rank; lanes of it are tracks of the same name."""

    name: str
    lane: int
    order: int
    """Among the tracks of its rank."""


@dataclass(slots=True)
class RankSlices:
    """The ops of a rank; columns are as long as `log.ops`. Times are on the run's clock."""

    log: RankLog
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    """OPEN for what did not end."""
    waited_until: NDArray[np.int64]
    """When all had come; OPEN where that did not happen, `begins` where nobody had to wait."""
    waits_for: NDArray[np.int32]
    """The rank that came last; SOMEBODY."""
    tracks: list[TraceTrack]
    track: NDArray[np.int32]
    """Index into `tracks`."""
    flows: NDArray[np.uint64]
    """Equal on all ends of one collective or message; 0: joined with nothing."""
    is_receiver: NDArray[np.bool_]
    """Whether a message that it is joined with comes here."""
    missing: dict[int, tuple[int, ...]]
    """The ranks that have not reached an op still in flight, by its index."""

    @property
    def has_wait(self) -> NDArray[np.bool_]:
        """Whether the wait is worth a slice of its own."""
        return self.waited_until - self.begins >= MIN_WAIT_NS

    @property
    def has_transfer(self) -> NDArray[np.bool_]:
        """Whether what comes after the wait is: the arrow of a message may not point back in time."""
        came: NDArray[np.bool_] = self.is_receiver & self.has_wait & (self.waited_until != OPEN)
        return came

    @property
    def has_flow(self) -> NDArray[np.bool_]:
        """Whether the op itself is joined with others, not its transfer; a recv that waits is with none."""
        has: NDArray[np.bool_] = (self.flows != 0) & ~(self.is_receiver & self.has_wait)
        return has


def to_slices(session: Session, log: RankLog, arrivals: Arrivals) -> RankSlices:
    """The slices of one rank; `session` has the tables."""
    ops = log.ops
    offset_ns = log.offset_ns
    begins = to_run_clock(np.frombuffer(ops.issued_ns, np.int64), offset_ns)
    started = np.frombuffer(ops.started_ns, np.int64)
    ended = np.frombuffer(ops.ended_ns, np.int64)
    in_flight = np.frombuffer(ops.status, np.uint8) == IN_FLIGHT
    # The end of some is damaged: they have ended, nobody knows when.
    known = ended != NEVER
    ends = np.where(in_flight, OPEN, np.where(known, to_run_clock(ended, offset_ns), begins))
    ends = np.maximum(ends, begins)
    has_not = np.where(in_flight, OPEN, begins)
    waited = np.where(started != NEVER, to_run_clock(started, offset_ns), has_not)
    waited = np.clip(waited, begins, ends)
    flags = np.frombuffer(ops.flags, np.uint8)
    groups = np.frombuffer(ops.group, np.int32)
    flows, is_receiver = _flows(session, log, arrivals, groups, flags)
    tracks, track = _tracks(session, begins, ends, groups, flags)
    return RankSlices(
        log=log,
        begins=begins,
        ends=ends,
        waited_until=waited,
        waits_for=_late_ranks(log, arrivals, groups, flags),
        tracks=tracks,
        track=track,
        flows=flows,
        is_receiver=is_receiver,
        missing=_missing(session, log, arrivals),
    )


def _tracks(
    session: Session,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    groups: NDArray[np.int32],
    flags: NDArray[np.uint8],
) -> tuple[list[TraceTrack], NDArray[np.int32]]:
    family = np.where(flags & Flag.MESSAGE, 1, np.where(flags & Flag.ASIDE, 2, 0)).astype(np.int32)
    keys = (groups + 1) * 3 + family
    lanes = find_lanes(begins, ends, keys)
    pairs, track = np.unique((keys.astype(np.int64) << 32) | lanes, return_inverse=True)
    tracks = []
    for order, pair in enumerate(pairs.tolist()):
        group, kind = divmod(pair >> 32, 3)
        label = session.groups[group - 1].label if group else "no group"
        if label.isdecimal():
            label = f"group {label}"
        tracks.append(TraceTrack(f"{label}{_FAMILIES[kind]}", pair & 0xFFFFFFFF, order))
    return tracks, track.astype(np.int32)


def _late_ranks(
    log: RankLog, arrivals: Arrivals, groups: NDArray[np.int32], flags: NDArray[np.uint8]
) -> NDArray[np.int32]:
    """The rank that each op waited for."""
    ops = log.ops
    late = np.full(len(ops), SOMEBODY, np.int32)
    messages = (flags & Flag.MESSAGE) != 0
    if messages.any():
        source, peer = np.frombuffer(ops.source, np.int32), np.frombuffer(ops.peer, np.int32)
        late[messages] = np.where(source != NONE, source, peer)[messages]
    if arrivals.has_clocks:
        seqs = np.frombuffer(ops.seq, np.int64)
        plain = (flags & (Flag.MESSAGE | Flag.ASIDE)) == 0
        for group in np.unique(groups[plain]).tolist():
            mine = plain & (groups == group)
            late[mine] = arrivals.last_of(group, seqs[mine])
    late[late == log.rank] = SOMEBODY
    return late


def _missing(session: Session, log: RankLog, arrivals: Arrivals) -> dict[int, tuple[int, ...]]:
    ops = log.ops
    found = {}
    for at in ops.in_flight():
        if ops.group[at] != NONE and not ops.flags[at] & (Flag.MESSAGE | Flag.ASIDE):
            members = session.groups[ops.group[at]].ranks
            if absent := arrivals.missing(ops.group[at], ops.seq[at], members):
                found[at] = absent
        elif ops.flags[at] & Flag.MESSAGE and ops.peer[at] != NONE:
            found[at] = (ops.peer[at],)
    return found


# --------------------------------------------------------------------------------------------- flows


def _flows(
    session: Session,
    log: RankLog,
    arrivals: Arrivals,
    groups: NDArray[np.int32],
    flags: NDArray[np.uint8],
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    ops = log.ops
    flows = np.zeros(len(ops), _U64)
    is_receiver = np.zeros(len(ops), np.bool_)
    plain = (flags & (Flag.MESSAGE | Flag.ASIDE)) == 0
    seqs = np.frombuffer(ops.seq, np.int64).astype(_U64)
    for index in np.unique(groups[plain]).tolist():
        if index == NONE or len(session.groups[index].ranks) == 1:
            continue
        mine = plain & (groups == index)
        flows[mine] = mix(_U64(_hash(session, session.groups[index].name)) + seqs[mine])
    for at, (group, sender, receiver, tag, number) in arrivals.number_messages(
        log.rank, ops
    ).items():
        if sender != receiver:
            name = session.groups[group].name if group != NONE else ""
            flows[at] = _hash(session, name, sender, receiver, tag, number)
            is_receiver[at] = log.rank == receiver
    return flows, is_receiver


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers that lie side by side as numbers that have nothing in common (splitmix64); never 0."""
    with np.errstate(over="ignore"):
        mixed = values * _U64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> _U64(27))) * _U64(0x94D049BB133111EB)
        return (mixed ^ (mixed >> _U64(31))) | _U64(1)


def _hash(session: Session, *words: object) -> int:
    text = repr((session.run, session.attempt, *words)).encode("utf-8", "backslashreplace")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") | 1


# --------------------------------------------------------------------------------------------- words


def wait_words(slices: RankSlices, at: int) -> str:
    """What stands on the wait of an op in flight: 'waits for ranks 3,7'."""
    absent = slices.missing.get(at, ())
    return wait_name(absent) if absent else "waits"


def wait_name(ranks: Sequence[int]) -> str:
    from distdbg.errors import format_ranks

    return f"waits for rank{'' if len(ranks) == 1 else 's'} {format_ranks(ranks)}"


def kind_label(kind: int, form_kind: str) -> str:
    """'all_reduce', 'new_group' ...; as the form has it where this version has no number for it."""
    from distdbg.record.entries import label_of_kind

    return label_of_kind(kind) or form_kind or "op"


def is_prompt(kind: int, flags: int) -> bool:
    """Whether it is a person at the prompt of a debugger."""
    return bool(flags & Flag.ASIDE) and kind == Aside.DEBUGGER


def choose_pids(start: RunStart) -> dict[int, int]:
    """By rank: its pid where the trace has one start of a job with a pid of each; else made from its rank."""
    pids = start.pids
    once = all(times == 1 for times in Counter(pids.values()).values())
    if once and start.session.attempts == 1 and all(pids.get(rank, 0) > 0 for rank in start.ranks):
        return pids
    first = _PER_START * (start.number + 1)
    return {rank: first + rank for rank in start.ranks}
