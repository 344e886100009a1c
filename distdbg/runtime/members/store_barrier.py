"""The algorithm behind monitored_barrier: every rank learns which ranks are missing, and where they are.

It uses only the group's store, so it works with every backend, even when the data plane is broken.
The ranks form a tree (barrier_tree.py). Keys of the n-th barrier of a group, all below monitored/<n>/:

    here/<rank>    an inner rank has arrived; a leaf sets only `up`
    up/<rank>      all ranks of this subtree have arrived; holds the first and the last
    verdict        how the barrier ended, for all; the first rank to write it decides

Good path: a rank waits for `up` of its children, sets its own, and waits for the verdict, which rank
0 sets: at most `arity` + 3 keys for any rank. Bad path: at the deadline rank 0 looks through the
branches that are not complete and writes who is missing. If it does not, being missing itself, those
below it do so a moment later, and so on down the tree. A rank that is seen to have died or left ends
the barrier at once. So all ranks raise the same error, and a late rank finds it.

Once all ranks have arrived in a barrier, nobody reads the keys of earlier ones; each rank then deletes its
own while it waits in the next one. Keys of a barrier that failed stay, for late ranks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from distdbg.errors import (
    DistError,
    DistNetworkError,
    DistStoreError,
    OpTimeout,
    PeerLost,
    RankLeft,
    format_ranks,
)
from distdbg.log.logs import get_logger
from distdbg.record.durations import duration_text
from distdbg.runtime.members.absent import host_of, recorded, where_are
from distdbg.runtime.members.barrier_tree import children_of, depth_of, find_missing
from distdbg.runtime.members.lost_members import find_gone

if TYPE_CHECKING:
    from distdbg.runtime.groups.group_state import GroupState

_log = get_logger("check")

ARITY = 4
#: How often a waiting rank looks for a verdict and for dead ranks.
_SLICE_S = 0.2
#: How much later each level of the tree decides, if nobody above it has.
_TURN_S = 0.25
#: How long ranks that came may take to pass on that all are here, before they are named.
_STUCK_S = 5.0
#: A store may round a timeout down.
_EARLY_S = 0.02
#: A process that is being ended closes its connections a moment before it counts as ended.
_ENDING_S = 0.3
#: Stores grant an answer some seconds beyond the time that was asked for.
_SILENT_S = 2.0


def run_monitored_barrier(group: GroupState, timeout_s: float | None, arity: int = ARITY) -> None:
    """Carry it out on one group."""
    group.monitored_seq += 1
    if group.size() == 1:
        return
    limit_s = group.timeout_s if timeout_s is None else timeout_s
    attempt = _Attempt(group, limit_s, arity)
    store = group.get_group_store()
    patience = store.timeout
    try:
        # Also a store that does not answer must not hold this rank longer than it asked for.
        store.set_timeout(timedelta(seconds=limit_s))
        verdict = attempt.come()
    except (DistStoreError, DistNetworkError) as error:
        # The store may be gone because the rank that served it is.
        found = attempt.find_gone(time.monotonic() + _ENDING_S)
        if found is None:
            raise
        raise attempt.error(found) from error
    finally:
        store.set_timeout(patience)
    if not verdict.has_failed:
        group.monitored_good = group.monitored_seq
        return
    public = attempt.error(verdict)
    _log.info("%s", public.what, rank=group.ranks[group.rank()])
    raise public


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """How a barrier ended. Ranks are group ranks."""

    missing: Sequence[int] = ()
    """Did not come by the deadline."""
    stuck: Sequence[int] = ()
    """Came, and then did not pass on that others have."""
    gone: int = -1
    """Died or left; `how` says which."""
    how: str = ""
    waited_s: float = 0.0
    lines: Sequence[str] = ()
    """Where the missing ranks are."""

    @property
    def has_failed(self) -> bool:
        return bool(self.missing or self.stuck) or self.gone >= 0

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: bytes) -> _Verdict:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """The first and the last rank of a subtree to arrive, and when."""

    first_s: float
    first: int
    last_s: float
    last: int

    def with_subtree(self, text: bytes) -> _Arrivals:
        other = _Arrivals(*json.loads(text))
        first, last = min(self, other, key=_first_s), max(self, other, key=_last_s)
        return _Arrivals(first.first_s, first.first, last.last_s, last.last)

    def to_json(self) -> str:
        return json.dumps([self.first_s, self.first, self.last_s, self.last])


def _first_s(arrivals: _Arrivals) -> float:
    return arrivals.first_s


def _last_s(arrivals: _Arrivals) -> float:
    return arrivals.last_s


class _Attempt:
    """One rank's way through one barrier."""

    def __init__(self, group: GroupState, limit_s: float, arity: int) -> None:
        self._group = group
        self._store = group.get_group_store()
        self._rank = group.rank()
        self._size = group.size()
        self._arity = arity
        self._seq = group.monitored_seq
        self._verdict_key = _key(self._seq, "verdict")
        self._clock = group.world.control
        self._started = self._clock.now()
        self._decide_at = self._started + limit_s + _TURN_S * depth_of(self._rank, arity)

    def come(self) -> _Verdict:
        """Arrive, wait, and return the verdict that holds for all."""
        now = time.time()
        arrivals = _Arrivals(now, self._rank, now, self._rank)
        children = children_of(self._rank, self._size, self._arity)
        if children:
            if (
                self._rank != 0
            ):  # rank 0 writes the verdict, and finds one that others wrote; so does a leaf
                verdict = self._read()
                if verdict is not None:  # this rank is late
                    return verdict
            self._store.set(self._own("here"), "1")
            self._forget(is_inner=True)
            found = self._wait([_key(self._seq, "up", child) for child in children])
            if isinstance(found, _Verdict):
                return found
            for report in found:
                arrivals = arrivals.with_subtree(report)
        if self._rank == 0:
            verdict = self._settle(_Verdict())
            if not verdict.has_failed:
                self._log_skew(arrivals)
            return verdict
        self._store.set(self._own("up"), arrivals.to_json())
        if not children:
            self._forget(is_inner=False)
        found = self._wait([self._verdict_key])
        return found if isinstance(found, _Verdict) else _Verdict.from_json(found[0])

    def find_gone(self, deadline: float = 0.0) -> _Verdict | None:
        """Look for a member that has died or left; with a deadline, as long as until then."""
        found = find_gone(self._group, deadline)
        return None if found is None else self._gone(*found)

    def error(self, verdict: _Verdict) -> DistError:
        """Put the verdict into words, which are the same on every rank up to the last line."""
        group = self._group
        op = f"monitored_barrier #{self._seq} on group '{group.label}'"
        if verdict.gone >= 0:
            peer = group.ranks[verdict.gone]
            if verdict.how.startswith("left"):
                return RankLeft(
                    f"{op} cannot complete: rank {peer} {verdict.how}",
                    peer=peer,
                    how=verdict.how,
                    ranks=[peer],
                    kind="monitored_barrier",
                    seq=self._seq,
                    group=group.label,
                    details=verdict.lines,
                )
            host = host_of(group, verdict.gone)
            place = f" on host {host}" if host else ""
            return PeerLost(
                f"rank {peer}{place} {verdict.how}; this rank needed it in {op}",
                peer=peer,
                how=verdict.how,
                kind="monitored_barrier",
                seq=self._seq,
                group=group.label,
                details=verdict.lines,
            )
        absent = [*verdict.missing, *verdict.stuck]
        missing = [group.ranks[rank] for rank in absent]
        arrived = [rank for rank in group.ranks if rank not in set(missing)]
        details = [*verdict.lines, "the group is still usable"]
        if verdict.stuck:
            stuck = format_ranks(group.ranks[rank] for rank in verdict.stuck)
            details.insert(0, f"ranks {stuck} arrived, but did not go on when all had arrived")
        if self._rank in verdict.missing:
            details.append("this rank arrived after the others had timed out")
        whom = f"rank{'s' if len(missing) > 1 else ''} {format_ranks(missing)}"
        return OpTimeout(
            f"{op} waited {duration_text(verdict.waited_s)} for {whom} of {format_ranks(group.ranks)}; "
            f"{len(arrived)} of {self._size} ranks arrived",
            missing=sorted(missing),
            arrived=arrived,
            waited_s=verdict.waited_s,
            kind="monitored_barrier",
            seq=self._seq,
            group=group.label,
            ranks=group.ranks,
            details=details,
            hint="raise timeout= if the rank is only slow",
        )

    # ----------------------------------------------------------------------------------- private

    def _forget(self, is_inner: bool) -> None:
        """Delete what this rank has set for barriers up to the last that all ranks came to.

        Not at the end of that one: the store may be gone as soon as the others go on.
        """
        group = self._group
        for seq in range(group.monitored_kept, group.monitored_good + 1):
            if is_inner:
                self._store.delete_key(_key(seq, "here", self._rank))
            if self._rank != 0:
                self._store.delete_key(_key(seq, "up", self._rank))
            elif seq > 1:  # of the newest, others may still have to read the verdict
                self._store.delete_key(_key(seq - 1, "verdict"))
        group.monitored_kept = group.monitored_good + 1

    def _own(self, what: str) -> str:
        return _key(self._seq, what, self._rank)

    def _read(self) -> _Verdict | None:
        if not self._store.check([self._verdict_key]):
            return None
        return _Verdict.from_json(self._store.get(self._verdict_key))

    def _settle(self, verdict: _Verdict) -> _Verdict:
        """Make it the verdict of all, unless there is one."""
        there = self._store.compare_set(self._verdict_key, "", verdict.to_json())
        return _Verdict.from_json(there)

    def _wait(self, keys: list[str]) -> list[bytes] | _Verdict:
        """Wait for keys: their values when they are there, the verdict when the barrier has failed."""
        while True:
            now = self._clock.now()
            left_s = self._decide_at - now
            slice_s = min(left_s, _SLICE_S) if left_s > 0.001 else _SLICE_S
            try:
                return self._store.await_values(keys, timedelta(seconds=slice_s))
            except DistStoreError as error:
                waited_s = self._clock.now() - now
                if waited_s < slice_s - _EARLY_S:
                    raise  # the store has another reason
                if waited_s > slice_s + _SILENT_S and not error.keys:
                    raise  # it has not answered
            found = self._read() or self.find_gone()
            if found is None and self._clock.now() >= self._decide_at:
                found = self._judge()
            if found is not None:
                return self._settle(found)

    def _judge(self) -> _Verdict | None:
        """Look who is missing; None when all have come, and only the news is on its way."""
        missing, stuck = find_missing(
            self._size,
            self._arity,
            lambda rank: self._store.check([_key(self._seq, "up", rank)]),
            lambda rank: self._store.check([_key(self._seq, "here", rank)]),
        )
        now = self._clock.now()
        if not missing and now < self._decide_at + _STUCK_S:
            return None
        return _Verdict(
            missing=missing,
            stuck=[] if missing else stuck,
            waited_s=now - self._started,
            lines=where_are(self._group, missing or stuck),
        )

    def _gone(self, rank: int, how: str) -> _Verdict:
        place = recorded(self._group, rank)
        return _Verdict(
            gone=rank,
            how=how,
            waited_s=self._clock.now() - self._started,
            lines=[] if place is None else [f"rank {self._group.ranks[rank]}: {place}"],
        )

    def _log_skew(self, arrivals: _Arrivals) -> None:
        ranks = self._group.ranks
        _log.debug(
            "monitored_barrier #%d on group '%s': rank %d arrived last, %.3f s after rank %d",
            self._seq,
            self._group.label,
            ranks[arrivals.last],
            arrivals.last_s - arrivals.first_s,
            ranks[arrivals.first],
        )


def _key(seq: int, what: str, rank: int | None = None) -> str:
    return f"monitored/{seq}/{what}" if rank is None else f"monitored/{seq}/{what}/{rank}"
