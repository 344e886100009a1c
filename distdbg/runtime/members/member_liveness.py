"""Finds whether the members of a group that is being made are alive, as far as this host can see.

Once a group has its shared memory, native code watches its ranks. Before that its members wait for
one another by keys of the store, and a key that a dead rank should have set never comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from distdbg.errors import (
    DistBackendError,
    DistNetworkError,
    DistStoreError,
    NoSharedMemoryError,
    PeerLost,
    RankLeft,
)
from distdbg.native import Watched
from distdbg.runtime.process.rank_context import current_context
from distdbg.runtime.rendezvous.process import ProcessIdentity

if TYPE_CHECKING:
    from distdbg.runtime.store import Store

#: How often the members are looked at while a key is waited for.
_SLICE_S = 0.3
#: How often others are looked at that may wait for this rank.
_LOOK_S = 0.1
#: A process that is being ended closes its connections a moment before it counts as ended.
_ENDING_S = 0.3
#: A store may round a timeout down.
_EARLY_S = 0.02


class MemberProcess:
    """One process, watched from now on: only so can be told how it ended, once it is gone."""

    __slots__ = ("identity", "process", "watched")

    def __init__(self, process: ProcessIdentity, me: ProcessIdentity) -> None:
        self.process = process
        #: (pid, start time), (0, 0) of this process itself, and where this host cannot tell.
        self.identity = (0, 0)
        self.watched: Watched | None = None
        if process != me and process.started and process.shares_kernel(me):
            self.identity = (process.pid, process.started)
            self.watched = Watched(*self.identity)


class NewGroupMembers:
    """The members of a new group, by group rank; `ranks` are what messages call them."""

    def __init__(
        self, group_name: str, ranks: Sequence[int], members: Sequence[MemberProcess] = ()
    ) -> None:
        self._group_name = group_name
        self._ranks = ranks
        self.members = members
        #: By group rank; empty when nothing is known of the members.
        self.identities = [life.identity for life in members]
        self._watched = [(i, life.watched) for i, life in enumerate(members) if life.watched]

    @property
    def ranks(self) -> Sequence[int]:
        """What messages call the members, by group rank."""
        return self._ranks

    def wait(
        self, store: Store, key: str, timeout_s: float, look: Callable[[], None] | None = None
    ) -> None:
        """Wait for a key; raises PeerLost when a member has died, else the store's error.

        While the job is paused the look at the members rests too.

        `look` is called now and then while nothing comes, and may raise.
        """
        clock = current_context().control
        deadline = clock.now() + timeout_s
        while True:
            left_s = max(deadline - clock.now(), 0.001)
            slice_s = min(left_s, _SLICE_S) if self._watched else left_s
            if look is not None:
                slice_s = min(left_s, _LOOK_S)
            slice_end = clock.now() + slice_s
            try:
                store.wait([key], timedelta(seconds=slice_s))
                return
            except DistStoreError:
                dead = self._find_dead()
                # It may have been the last to come, and the group have lived and ended since.
                if dead is not None and not store.check([key]):
                    raise self.lost(*dead) from None
                now = clock.now()
                if now >= deadline - _EARLY_S or now < slice_end - _EARLY_S:
                    raise  # the time is over, or the store has another reason
                if look is not None:
                    look()

    def check(self) -> None:
        """Raise PeerLost when a member has died, or is just dying."""
        deadline = time.monotonic() + _ENDING_S
        while True:
            dead = self._find_dead()
            if dead is not None:
                raise self.lost(*dead) from None
            if not self._watched or time.monotonic() >= deadline:
                return
            time.sleep(0.01)

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Turn the failure of a store or of memory into PeerLost, where the rank it was on has died."""
        try:
            yield
        except (
            PeerLost,
            NoSharedMemoryError,
        ):  # which is so on all ranks, whoever has left already
            raise
        except (DistNetworkError, DistBackendError):
            self.check()
            raise

    def lost(
        self,
        index: int,
        how: str,
        host: str | None = None,
        tried: str = "",
        hint: str | None = None,
    ) -> PeerLost:
        """Return the error for the member with this group rank. `tried`: how to reach it."""
        peer = self._ranks[index]
        # A rank that ended by itself did not call what the others call: a mismatch as well.
        kind = RankLeft if how.startswith("exited") else PeerLost
        return kind(
            f"rank {peer}{f' on host {host}' if host else ''} {how}; "
            f"this rank needed it to make group '{self._group_name}'",
            peer=peer,
            how=how,
            group=self._group_name,
            details=[*([tried] if tried else []), "the group was not made"],
            hint=hint,
        )

    def how(self, index: int, otherwise: str) -> str:
        """Return how a member ended, as whoever watched it while it lived knows best."""
        return next((w.how() for i, w in self._watched if i == index and w.is_dead()), otherwise)

    def first_cause(self, index: int, how: str) -> tuple[int, str]:
        """Return who is to be named where this member is gone: one that was killed, if there is any.

        The others may have ended because of it, and be seen first.
        """
        if not how.startswith("exited"):
            return index, how
        return next(
            ((i, h) for i, h in self._all_dead() if not h.startswith("exited")), (index, how)
        )

    def _find_dead(self) -> tuple[int, str] | None:
        first = next(self._all_dead(), None)
        return None if first is None else self.first_cause(*first)

    def _all_dead(self) -> Iterator[tuple[int, str]]:
        return ((i, w.how()) for i, w in self._watched if w.is_dead())
