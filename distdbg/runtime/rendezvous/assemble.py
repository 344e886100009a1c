"""All ranks announce themselves in the store and wait for one verdict on who came.

Keys, below `distdbg/join`, in rounds. A round ends with its verdict, and the next attempt on the
same store (init after destroy, or after a failure, or a later run on the same file) is the next.

    round                     number of rounds that ended
    <n>/came/<rank>           JSON of a Member, who is about to announce itself
    <n>/arrived               how many have announced themselves in round n
    <n>/arrival/<k>           the k-th announcement: JSON of a Member
    <n>/claims/<rank>         how often a rank was announced; must stay 1
    <n>/decided               the first to raise this to 1 writes the verdict
    <n>/verdict               JSON of a Verdict; the round's end
    <n>/read, <n>/all_read    lets the rank that hosts the store stay until all know the verdict
    <n>/left/<rank>           the rank has left the group again

A rank announces itself and waits for the verdict: a few messages whatever the number of ranks.
Whoever completes the round decides, or whoever notices why it cannot be completed, or whose
deadline passes first. `round` is raised before the verdict is written: a rank that has read it and
starts anew is certain to find the next round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from distdbg.errors import DistError, RendezvousError
from distdbg.record.join_note import note_connected, read_started
from distdbg.runtime.rendezvous.outcome import (
    JoinedRank,
    Outcome,
    RendezvousVerdict,
    expect_hosts,
    explain,
    member_from_json,
    member_to_json,
    verdict_from_json,
    verdict_to_json,
)
from distdbg.runtime.rendezvous.process import is_alive, is_gone

if TYPE_CHECKING:
    from distdbg.runtime.store import Store

_PREFIX = "distdbg/join"
#: How long the host of the store stays for others to read the verdict.
_LINGER_S = 2.0
#: What is written right after something that was just seen; longer means its writer died.
_FOLLOW_UP_S = 5.0
#: How often a rank looks whether the one that it watches has died.
_WATCH_NS = 500_000_000
#: The same, of an announcement that is just being made.
_LOOK_S = 0.5
#: For what should be there already.
_GLANCE_S = 0.001
#: A store may round a timeout down; its error this close to the deadline is a timeout.
_EARLY_NS = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AssembledRound:
    """A complete round."""

    round: int
    members: tuple[JoinedRank, ...]
    """By rank."""


def assemble(
    store: Store,
    me: JoinedRank,
    deadline_ns: int,
    *,
    where: str,
    started_ns: int | None = None,
    hosts: Sequence[str] = (),
    is_host: bool = False,
    is_exclusive: bool = False,
    on_decided: Callable[[], None] = lambda: None,
    find_dead: Callable[[], JoinedRank | None] = lambda: None,
) -> AssembledRound:
    """Announce `me` and wait for all ranks of its world; RendezvousError on every rank otherwise.

    `started_ns` is when this rank began to look for the store. `hosts` are the launcher's, for
    saying where a missing rank was expected. The rank that `is_host` keeps the store open until the
    others have read the verdict. `is_exclusive`: the store outlives its processes (a file), so a
    former run may have left traces and another one may use it now. `on_decided` is called on every
    rank after the decision and before this rank tells that it knows it. `find_dead` knows of deaths
    that the store does not; it is asked now and then.
    """
    started_ns = time.monotonic_ns() if started_ns is None else started_ns
    number = _find_round(store, me, where, is_exclusive, is_host)
    note_connected()
    arena = JoinRound(store, number, me, hosts, find_dead)
    try:
        arrival = arena.announce()
        if arena.claim() > 1:
            verdict = arena.decide("twice", culprits=(me.rank,))
        elif arrival > 1 and arena.arrival(1).world_size != me.world_size:
            verdict = arena.decide("sizes")
        elif arrival == me.world_size:
            verdict = arena.complete()
        else:
            verdict = arena.wait(deadline_ns, arrival) or arena.decide(
                "missing", waited_s=(time.monotonic_ns() - started_ns) / 1e9
            )
    except _Died as death:
        verdict = arena.decide("died", culprits=(death.rank.rank,), lost=death.rank)
    except (KeyboardInterrupt, SystemExit):
        # The others need not wait for the deadline to learn this.
        with suppress(DistError):
            arena.decide("left", culprits=(me.rank,))
        raise
    on_decided()
    arena.acknowledge(verdict, is_host=is_host)
    if verdict.outcome != "complete":
        raise explain(verdict, me, where, started=read_started(os.environ))
    return AssembledRound(
        round=number, members=tuple(sorted(verdict.members, key=lambda member: member.rank))
    )


def leave(store: Store, round_number: int, rank: int) -> None:
    """Note that a rank has left the group, so that a file can be used by another run at once."""
    store.set(f"{_PREFIX}/{round_number}/left/{rank}", "1")


def await_left(store: Store, round_number: int, ranks: Sequence[int], timeout_s: float) -> None:
    """Wait until all these ranks have left; DistStoreError when the time is over."""
    keys = [f"{_PREFIX}/{round_number}/left/{rank}" for rank in ranks]
    store.wait(keys, timedelta(seconds=timeout_s))


def _find_round(store: Store, me: JoinedRank, where: str, is_exclusive: bool, is_host: bool) -> int:
    # Returns the round to announce in; ends one that a killed run left unfinished.
    while True:
        number = store.add(f"{_PREFIX}/round", 0)
        if number > 0:
            former = JoinRound(store, number - 1, me, ())
            _check_former(former, me, where, is_exclusive)
            if is_host and not is_exclusive:  # else the traces may be those of a former run
                _check_failed(former, me, where)
        if not is_exclusive or store.add(f"{_PREFIX}/{number}/arrived", 0) == 0:
            return number
        arena = JoinRound(store, number, me, ())
        try:
            first = arena.arrival(1)
        except _Died as death:
            first = death.rank
        if not is_gone(first.process, me.process):
            return number
        arena.decide("died", culprits=(first.rank,), lost=first)


def _check_former(former: JoinRound, me: JoinedRank, where: str, is_exclusive: bool) -> None:
    # After a complete round its processes may start another one; others only when those are gone.
    verdict = former.wait(time.monotonic_ns() + int(_FOLLOW_UP_S * 1e9))
    if verdict is None or verdict.outcome != "complete":
        return
    if any(member.process == me.process for member in verdict.members):
        return
    others = [m for m in verdict.members if is_exclusive or m.rank == me.rank]
    for other in sorted(others, key=lambda member: member.rank):
        if is_gone(other.process, me.process) or former.has_left(other.rank):
            continue
        if is_alive(other.process, me.process):
            raise RendezvousError(
                f"{where} is in use by another run: its rank {other.rank} is pid "
                f"{other.process.pid} on {other.host}",
                expected=me.world_size,
                hint="end that run, or meet somewhere else",
            )
        if is_exclusive:
            raise RendezvousError(
                f"{where} was used by a run that may still be running: its rank {other.rank} was pid "
                f"{other.process.pid} on {other.host}",
                expected=me.world_size,
                details=["that process cannot be seen from here"],
                hint=f"if that run has ended, delete {where.removeprefix('file://')}",
            )


def _check_failed(former: JoinRound, me: JoinedRank, where: str) -> None:
    """Raise what the others have raised already, in the moment since this rank serves the store.

    It would wait for them alone in the next round.
    """
    verdict = former.wait(time.monotonic_ns() + int(_FOLLOW_UP_S * 1e9))
    if verdict is None or verdict.outcome == "complete":
        return
    if any(member.process == me.process for member in verdict.members):
        return  # it has failed there too, and tries again
    former.linger()
    raise explain(verdict, me, where)


class _Died(Exception):
    """A rank died before it had announced itself."""

    def __init__(self, rank: JoinedRank) -> None:
        super().__init__(f"rank {rank.rank}")
        self.rank = rank


class JoinRound:
    """One rank's view of one round."""

    def __init__(
        self,
        store: Store,
        number: int,
        me: JoinedRank,
        hosts: Sequence[str],
        find_dead: Callable[[], JoinedRank | None] = lambda: None,
    ) -> None:
        self._store = store
        self._number = number
        self._find_dead = find_dead
        self._prefix = f"{_PREFIX}/{number}"
        self._me = me
        self._hosts = hosts

    def announce(self) -> int:
        """Add this rank; returns how many there are now."""
        # First, so that a death between the next two lines has a name.
        self._store.set(f"{self._prefix}/came/{self._me.rank}", member_to_json(self._me))
        arrival = self._store.add(f"{self._prefix}/arrived", 1)
        self._store.set(f"{self._prefix}/arrival/{arrival}", member_to_json(self._me))
        return arrival

    def claim(self) -> int:
        """Return how often this rank has been announced now."""
        return self._store.add(f"{self._prefix}/claims/{self._me.rank}", 1)

    def arrival(self, index: int) -> JoinedRank:
        """Return the announcement with a number that was seen to be taken; _Died without one."""
        deadline = time.monotonic() + _FOLLOW_UP_S
        while True:
            try:
                return member_from_json(self._read(f"{self._prefix}/arrival/{index}", _LOOK_S))
            except DistError:
                dead = self._find_gone()
                if dead is not None:
                    raise _Died(dead) from None
                if time.monotonic() >= deadline:
                    raise

    def complete(self) -> RendezvousVerdict:
        """Decide as the last to arrive."""
        members = [self.arrival(index) for index in range(1, self._me.world_size + 1)]
        ranks = [member.rank for member in members]
        twice = next((rank for rank in ranks if ranks.count(rank) > 1), None)
        if twice is not None:
            return self.decide("twice", culprits=(twice,))
        if any(member.world_size != self._me.world_size for member in members):
            return self.decide("sizes")
        return self.decide("complete")

    def wait(self, deadline_ns: int, arrival: int = 0) -> RendezvousVerdict | None:
        """Return the verdict; None if there is none at the deadline.

        With its own `arrival`, decides itself when a rank that announced itself dies. Each rank
        watches the one that came before it, the first one the latest: a few messages, whatever the
        number of ranks.
        """
        while True:
            end_ns = min(deadline_ns, time.monotonic_ns() + _WATCH_NS)
            left_s = (end_ns - time.monotonic_ns()) / 1e9
            try:
                return verdict_from_json(self._read(f"{self._prefix}/verdict", max(left_s, 0.001)))
            except DistError:
                now_ns = time.monotonic_ns()
                if now_ns < end_ns - _EARLY_NS:
                    raise  # the store is gone, which is not the same as nobody coming
                if now_ns >= deadline_ns - _EARLY_NS:
                    return None
            if not arrival:
                continue
            index = arrival - 1 or self._store.add(f"{self._prefix}/arrived", 0)
            dead = self._find_dead() or self._watch(index)
            if dead is not None:
                return self.decide("died", culprits=(dead.rank,), lost=dead)

    def _watch(self, index: int) -> JoinedRank | None:
        """The rank with this number of arrival, if it is gone."""
        try:
            watched = member_from_json(self._read(f"{self._prefix}/arrival/{index}", _GLANCE_S))
        except DistError:
            return self._find_gone()
        return watched if is_gone(watched.process, self._me.process) else None

    def _find_gone(self) -> JoinedRank | None:
        """A rank that is gone, of those that came: also one that has not announced itself yet."""
        for rank in range(self._me.world_size):
            key = f"{self._prefix}/came/{rank}"
            if self._store.check([key]):
                member = member_from_json(self._store.get(key))
                if is_gone(member.process, self._me.process):
                    return member
        return None

    def decide(
        self,
        outcome: Outcome,
        *,
        culprits: tuple[int, ...] = (),
        waited_s: float = 0.0,
        lost: JoinedRank | None = None,
    ) -> RendezvousVerdict:
        """End the round with this verdict, or return the one that another rank came to first."""
        if self._store.add(f"{self._prefix}/decided", 1) == 1:
            return self._end(self._judge(outcome, culprits, waited_s, lost))
        deadline = time.monotonic() + _FOLLOW_UP_S
        while True:
            try:
                return verdict_from_json(self._read(f"{self._prefix}/verdict", _LOOK_S))
            except DistError:
                # The first rank may have died before it wrote it down.
                dead = self._find_dead() or self._find_gone()
                if dead is not None:
                    return self._end(self._judge("died", (dead.rank,), 0.0, dead))
                if time.monotonic() >= deadline:
                    raise

    def _end(self, verdict: RendezvousVerdict) -> RendezvousVerdict:
        """Make it the verdict, unless there is one; returns what holds for all."""
        self._store.compare_set(f"{_PREFIX}/round", str(self._number), str(self._number + 1))
        there = self._store.compare_set(f"{self._prefix}/verdict", "", verdict_to_json(verdict))
        return verdict_from_json(there)

    def acknowledge(self, verdict: RendezvousVerdict, *, is_host: bool) -> None:
        """Tell that this rank knows; the host of the store stays until all do, or for a moment."""
        with suppress(DistError):  # too late for anything but going on
            if self._store.add(f"{self._prefix}/read", 1) >= verdict.readers:
                self._store.set(f"{self._prefix}/all_read", "1")
            elif is_host:
                self._store.wait([f"{self._prefix}/all_read"], timedelta(seconds=_LINGER_S))

    def linger(self) -> None:
        """Keep the store until all have read the verdict, or for a moment."""
        with suppress(DistError):
            self._store.wait([f"{self._prefix}/all_read"], timedelta(seconds=_LINGER_S))

    def has_left(self, rank: int) -> bool:
        """Whether a rank of this round has left its group."""
        return self._store.check([f"{self._prefix}/left/{rank}"])

    def _judge(
        self,
        outcome: Outcome,
        culprits: tuple[int, ...],
        waited_s: float,
        lost: JoinedRank | None,
    ) -> RendezvousVerdict:
        arrived = self._store.add(f"{self._prefix}/arrived", 0)
        members = []
        for index in range(1, arrived + 1):
            # Whoever counted itself but did not get to say who it is has not joined.
            with suppress(DistError, _Died):
                members.append(self.arrival(index))
        dead = [m.rank for m in members if is_gone(m.process, self._me.process)]
        if outcome == "missing" and dead:
            outcome, culprits = "died", (dead[0],)
        return RendezvousVerdict(
            outcome=outcome,
            members=tuple(members),
            world_size=self._me.world_size,
            waited_s=waited_s,
            culprits=culprits,
            readers=len(members) - len(dead),
            plan=expect_hosts(self._me.world_size, members, self._hosts),
            lost=(lost,) if lost is not None and lost not in members else (),
        )

    def _read(self, key: str, timeout_s: float) -> bytes:
        self._store.wait([key], timedelta(seconds=timeout_s))
        return self._store.get(key)
