"""`join`: from a URL to a store that all ranks of the world have reached; what init uses."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit, urlunsplit

from distdbg.errors import DistError, DistNetworkError, DistStoreError, RendezvousError, UsageError
from distdbg.runtime.api.integers import to_place
from distdbg.runtime.rendezvous.assemble import assemble, await_left, leave
from distdbg.runtime.rendezvous.outcome import JoinedRank, died_before_the_store
from distdbg.runtime.rendezvous.presence import Presence
from distdbg.runtime.rendezvous.process import find_launcher_process, identify_self, is_gone
from distdbg.runtime.rendezvous.reach import OpenStore, add_hidden, add_refused, reach
from distdbg.runtime.rendezvous.resolve import AtAddress, JoinPlan, find_place, plan_meeting

if TYPE_CHECKING:
    from distdbg.runtime.store import Store

type_handler = Callable[..., Iterator[tuple["Store", int, int]]]

#: Programs that start the ranks of a host; their process stands for a job that has no name.
_LAUNCHER_PROGRAMS = re.compile(
    r"hydra_pmi_proxy|pmi_proxy|mpiexec.*|mpirun.*|prterun|prted|orted|orterun|slurmstepd|pals.*"
)
_RETRY_S = 0.02
#: How often ranks that have not left are looked for while the store's rank waits for them.
_LEAVE_SLICE_S = 0.05

#: Filled by register_rendezvous_handler; per process, like the schemes of URLs themselves.
_handlers: dict[str, type_handler] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A rank's place in a world whose ranks have all come."""

    store: Store
    """For the group's own keys: nothing of a former round is in it."""
    base_store: Store
    """What was opened, or given by the caller."""
    rank: int
    world_size: int
    members: tuple[JoinedRank, ...]
    """By rank: host, process and local rank of each."""
    round: int
    where: str

    def leave(self) -> None:
        """Note that this rank left the group; call it on destroy, before the store is closed.

        Lets another run use a file:// at once, also from hosts that cannot see this process.
        """
        with suppress(DistError):  # the store may have ended with rank 0 already
            leave(self.base_store, self.round, self.rank)

    @property
    def serves_others(self) -> bool:
        """Whether the store where the ranks met ends with this process."""
        store = self.base_store
        # Ours alone, when we have made the connection below it.
        store = getattr(store, "underlying_store", store)
        return bool(getattr(store, "is_serving", False))

    def end(self, timeout_s: float) -> None:
        """At the end of the process: as after destroy, the store stays for those that still need it.

        Also another rank tells that it needs it no more; on other hosts nobody sees that it has ended.
        """
        if self.members[self.rank].process.pid != os.getpid():
            return  # a child that this rank has forked
        with suppress(DistError):
            self.base_store.set_timeout(timedelta(seconds=timeout_s))
        self.leave()
        if self.serves_others:
            self.await_others(timeout_s)

    def await_others(self, timeout_s: float) -> None:
        """Wait until the other ranks have left, or are gone, or the time is over.

        For the rank that serves the store, before it closes it: who is done first would otherwise
        take the store from those that still read the end of the same op.
        """
        me = self.members[self.rank].process
        others = [member for member in self.members if member.rank != self.rank]
        deadline = time.monotonic() + timeout_s
        while others and time.monotonic() < deadline:
            try:
                await_left(self.base_store, self.round, [m.rank for m in others], _LEAVE_SLICE_S)
                return
            except DistError:
                others = [member for member in others if not is_gone(member.process, me)]


def join(
    url: str = "env://",
    *,
    rank: int = -1,
    world_size: int = -1,
    timeout_s: float,
    store: Store | None = None,
) -> Membership:
    """Meet the other ranks; returns when all have come, blocking for `timeout_s` at most.

    With `store` given, `url` is not looked at, and `rank` and `world_size` must be given. Raises
    UsageError and ConfigError for what is wrong with the arguments and the environment, and
    RendezvousError on every rank if not all ranks came.
    """
    started_ns = time.monotonic_ns()
    deadline_ns = started_ns + int(timeout_s * 1e9)
    if store is not None:
        return _join_store(store, rank, world_size, deadline_ns, "the given store")
    scheme = urlsplit(url).scheme
    if scheme in _handlers:
        given = _handlers[scheme](
            _with_query(url, rank, world_size), timeout=timedelta(seconds=timeout_s)
        )
        store, rank, world_size = next(iter(given))
        return _join_store(store, rank, world_size, deadline_ns, url)
    meeting = plan_meeting(
        url, rank, world_size, os.environ, find_launcher_process(_LAUNCHER_PROGRAMS)
    )
    me = _member(meeting)
    if isinstance(meeting.where, AtAddress) and meeting.where.by_launcher:
        return _join_meeting(meeting, me, started_ns, deadline_ns, lambda: None)
    presence = Presence(str(meeting.where), me)
    with presence.announced():
        return _join_meeting(meeting, me, started_ns, deadline_ns, presence.find_dead)


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, **kwargs: timedelta
) -> Iterator[tuple[Store, int, int]]:
    """Return an iterator whose first item is (store, rank, world_size), once all ranks have come.

    `timeout` (a timedelta, default 5 minutes) limits the wait. There is no second item: ranks that
    want to meet again call rendezvous again.
    """
    if not isinstance(url, str):
        raise UsageError(f"rendezvous needs a URL as text, got {type(url).__name__}")
    rank, world_size = to_place("rank", rank), to_place("world_size", world_size)
    scheme = urlsplit(url).scheme
    if scheme in _handlers:
        return iter(_handlers[scheme](_with_query(url, rank, world_size), **kwargs))
    timeout = kwargs.pop("timeout", timedelta(minutes=5))
    if kwargs:
        raise UsageError(f"{scheme}:// does not know {', '.join(sorted(kwargs))}=")
    return _once(url, rank, world_size, timeout)


def register_rendezvous_handler(scheme: str, handler: type_handler) -> None:
    """Have `handler(url, timeout=...)` serve URLs of `scheme`; rank and size are in its query.

    It returns an iterator over (store, rank, world_size). A scheme has one handler only.
    """
    if scheme in ("env", "tcp", "file", "local") or scheme in _handlers:
        raise UsageError(f"a rendezvous handler for {scheme}:// already exists")
    _handlers[scheme] = handler


def _once(
    url: str, rank: int, world_size: int, timeout: timedelta
) -> Iterator[tuple[Store, int, int]]:
    membership = join(url, rank=rank, world_size=world_size, timeout_s=timeout.total_seconds())
    yield membership.store, membership.rank, membership.world_size
    raise UsageError(f"the ranks have met at {url} already; call rendezvous for another time")


def _join_meeting(
    meeting: JoinPlan,
    me: JoinedRank,
    started_ns: int,
    deadline_ns: int,
    find_dead: Callable[[], JoinedRank | None],
) -> Membership:
    def look() -> None:
        dead = find_dead()
        if dead is not None:
            raise died_before_the_store(dead, me, str(meeting.where))

    while True:
        reached = reach(meeting, deadline_ns, me.process, look)
        try:
            return _join_reached(reached, meeting, me, started_ns, deadline_ns, find_dead)
        except RendezvousError as error:
            if reached.is_host:
                add_hidden(error, reached)
                add_refused(error, reached)
            raise
        except (DistNetworkError, DistStoreError):
            # The store ended under us: it belonged to the group that is just being destroyed there.
            if reached.is_host or reached.is_exclusive or time.monotonic_ns() > deadline_ns:
                raise
        time.sleep(_RETRY_S)


def _join_reached(
    reached: OpenStore,
    meeting: JoinPlan,
    me: JoinedRank,
    started_ns: int,
    deadline_ns: int,
    find_dead: Callable[[], JoinedRank | None],
) -> Membership:
    assembled = assemble(
        reached.store,
        me,
        deadline_ns,
        where=str(meeting.where),
        started_ns=started_ns,
        hosts=meeting.place.hosts if meeting.place else (),
        is_host=reached.is_host,
        is_exclusive=reached.is_exclusive,
        on_decided=reached.release,
        find_dead=find_dead,
    )
    return _membership(reached.store, me, assembled.members, assembled.round, str(meeting.where))


def _join_store(
    store: Store, rank: int, world_size: int, deadline_ns: int, where: str
) -> Membership:
    absent = [n for n, v in (("rank", rank), ("world_size", world_size)) if v < 0]
    if absent:
        raise UsageError(
            f"a store does not define rank and world size: pass {' and '.join(absent)} too"
        )
    if not 0 <= rank < world_size:
        raise UsageError(f"rank {rank} does not exist in a world of {world_size}")
    place = None
    with suppress(DistError):  # only for messages
        place = find_place(os.environ)
    if place is not None and (place.rank, place.world_size) != (rank, world_size):
        place = None
    me = JoinedRank(
        rank=rank,
        world_size=world_size,
        local_rank=place.local_rank if place else None,
        local_world_size=place.local_world_size if place else None,
        process=identify_self(),
    )
    assembled = assemble(store, me, deadline_ns, where=where, hosts=place.hosts if place else ())
    return _membership(store, me, assembled.members, assembled.round, where)


def _membership(
    base_store: Store, me: JoinedRank, members: tuple[JoinedRank, ...], number: int, where: str
) -> Membership:
    from distdbg.runtime.store import PrefixStore

    return Membership(
        store=PrefixStore(f"distdbg/{number}", base_store),
        base_store=base_store,
        rank=me.rank,
        world_size=me.world_size,
        members=members,
        round=number,
        where=where,
    )


def _member(meeting: JoinPlan) -> JoinedRank:
    place = meeting.place
    return JoinedRank(
        rank=meeting.rank,
        world_size=meeting.world_size,
        local_rank=place.local_rank if place else None,
        local_world_size=place.local_world_size if place else None,
        process=identify_self(),
    )


def _with_query(url: str, rank: int, world_size: int) -> str:
    # Registered handlers read both from the URL; what the caller passed wins.
    parts = urlsplit(url)
    kept = [
        item
        for item in parts.query.split("&")
        if item
        and not (rank >= 0 and item.startswith("rank="))
        and not (world_size >= 0 and item.startswith("world_size="))
    ]
    asked = {n: v for n, v in (("rank", rank), ("world_size", world_size)) if v >= 0}
    query = "&".join([*kept, *([urlencode(asked)] if asked else [])])
    return urlunsplit(parts._replace(query=query))
