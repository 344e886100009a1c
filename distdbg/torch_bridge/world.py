"""A World of ours beside torch's groups: rank, size, record, control page and agent, as for our own jobs.

The ranks meet in torch's own store, under keys of our own. Either all of them are watched or none: the last
to come decides for yes, the first that has waited too long for no.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from distdbg.errors import DistError
from distdbg.ops.sites import call_site, warn_at_call_site
from distdbg.record.format import Aside
from distdbg.runtime.backends.registry import Backend
from distdbg.runtime.groups.creation import create_group
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_join import meet, part
from distdbg.runtime.groups.membership import Creation
from distdbg.runtime.members.member_liveness import NewGroupMembers
from distdbg.runtime.process.destroy import destroy_process_group
from distdbg.runtime.process.init import init_process_group
from distdbg.runtime.process.world import World, current, set_watching, use
from distdbg.runtime.recorder.recorded_waits import aside
from distdbg.runtime.store import PrefixStore, Store
from distdbg.torch_bridge.store import TorchStore
from distdbg.torch_bridge.tap.engine import TorchEngine, TorchGroupEngine

#: How long ranks wait for one another to say that they are watched. They come out of torch's own meeting.
_PATIENCE_S = 60.0
_LOOK_S = 0.005
_ON, _OFF = b"on", b"off"
#: Counts in the store the members that have made what is beside a group of theirs.
_MADE = "made"
#: How long a rank that leaves stays for those that are still at it.
_LINGER_S = 5.0
#: Set in the store by a rank that watches no longer.
_UNWATCHED = "unwatched"


class WatchingWorld:
    """The World of one torch job in this process."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: The groups that all ranks have made together, and how many members these have.
        self._compared: set[str] = set()
        self._member_count = 0

    @property
    def world(self) -> World:
        """Whose groups are beside torch's."""
        return self._world

    @property
    def group(self) -> ProcessGroup:
        """What is beside torch's default group."""
        return self._world.require_default()

    @classmethod
    def begin(
        cls, theirs: TorchGroupEngine, store: Any, *, backend: str, timeout_s: float
    ) -> WatchingWorld | None:
        """Meet the other ranks and start to watch; None where not all ranks want that."""
        beside = PrefixStore("distdbg", TorchStore(_own_handle(store)))
        rank, size = theirs.group.rank(), theirs.group.size()
        if not _all_are_watched(beside, rank, size, min(timeout_s, _PATIENCE_S)):
            warn_at_call_site(
                "distdbg does not watch this torch job: DISTDBG_TORCH is not set for all ranks",
                RuntimeWarning,
            )
            return None
        world = World()
        with use(world):
            init_process_group(
                backend=_registered(backend),
                store=beside,
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=timeout_s),
                pg_options=theirs,
            )
        set_watching(world)
        return cls(world)

    def compare(self, ranks: list[int], name: str, timeout_s: float) -> None:
        """Meet all ranks before torch makes its group `name`; raise where they make different ones."""
        world, default = self._world, self.group
        assert world.membership is not None  # of a World that has begun
        root = PrefixStore("creations", world.membership.store)
        everybody, me = list(default.ranks), default.ranks[default.rank()]
        creation = _Watched(root, name, me, ranks, "new_group", call_site(), world.reported)
        creation.off = world.membership.store
        lives = NewGroupMembers(name, everybody, default.members)
        store = PrefixStore(f"{name}/", root)
        self._compared.add(name)
        self._member_count += len(ranks)
        number = len(self._compared)
        with use(world), aside(default, Aside.NEW_GROUP, number, "new_group", everybody):
            creation.compare(everybody)
            with lives.blamed():
                meet(store, default.rank(), everybody, timeout_s, name, lives, creation)
        part(store, len(everybody))

    def add(
        self,
        theirs: TorchGroupEngine,
        ranks: list[int],
        *,
        backend: str,
        desc: str,
        timeout_s: float,
    ) -> ProcessGroup:
        """Make what is beside a further group; all of its members do."""
        world, default = self._world, self.group
        assert world.membership is not None  # of a World that has begun
        root = PrefixStore("additions", world.membership.store)
        name, me = str(theirs.group.group_name), default.ranks[default.rank()]
        creation = _Watched(root, name, me, ranks, "new_group", call_site(), world.reported)
        creation.off = world.membership.store
        with use(world):
            made = create_group(
                world,
                world.membership.store,
                name=name,
                desc=desc or "undefined",
                ranks=ranks,
                rank=theirs.group.rank(),
                backend=_config(backend),
                timeout_s=timeout_s,
                pg_options=theirs,
                members=[default.members[rank] for rank in ranks],
                creation=creation,
            )
        if name in self._compared:
            world.membership.store.add(_MADE, 1)
        return made

    def _await_others(self) -> None:
        """Stay for members that still make a group: torch's store may end with this rank."""
        membership = self._world.membership
        if membership is None or not self._compared:
            return
        lives = [life.watched for life in self.group.members if life.watched is not None]
        deadline, pause_s = time.monotonic() + _LINGER_S, _LOOK_S
        with suppress(DistError):  # then it has ended before this rank
            while membership.store.add(_MADE, 0) < self._member_count:
                if membership.store.check([_UNWATCHED]) or any(life.is_dead() for life in lives):
                    return
                if time.monotonic() > deadline:
                    return
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 20 * _LOOK_S)

    def tell_off(self, why: str) -> None:
        """This rank watches no longer: who waits for it to make a group is told."""
        if self._world.membership is not None:
            with suppress(DistError):
                self._world.membership.store.set(_UNWATCHED, f"rank {self.group.rank()}: {why}")

    def remove(self, group: ProcessGroup) -> None:
        """Torch destroys the group that this one is beside."""
        if self._world.groups.pop(group.group_name, None) is group:
            group.shutdown()
            part(group.get_group_store(), group.size())

    def end(self) -> None:
        """Torch destroys all groups."""
        self._await_others()
        set_watching(None)
        with use(self._world):
            destroy_process_group()


class _Watched(Creation):
    """A meeting that ends as well when a rank watches no longer."""

    off: Store
    """Where such a rank says so."""

    def look(self, missing: Sequence[int]) -> None:
        """See Creation.look."""
        if self.off.check([_UNWATCHED]):
            raise DistError(f"another rank watches no longer: {self.off.get(_UNWATCHED).decode()}")
        super().look(missing)


def _all_are_watched(store: Store, rank: int, size: int, patience_s: float) -> bool:
    """Whether every rank asks this within the time; all get the same answer."""
    if store.add("watched", 1) >= size:
        store.compare_set("decision", "", _ON)
    deadline = time.monotonic() + patience_s
    while not store.check(["decision"]):
        if time.monotonic() > deadline:
            store.compare_set("decision", "", _OFF)
            break
        time.sleep(_LOOK_S)
    return store.get("decision") == _ON


def _own_handle(store: Any) -> Any:
    """A connection of our own, where torch can make one: an op that waits there keeps all others from it."""
    clone = getattr(store, "clone", None)
    if clone is None:
        return store
    try:
        return clone()
    except RuntimeError:  # this kind of store has no second handle
        return store


def _registered(backend: str) -> str:
    """The name under which our registry knows torch's backend."""
    name = "torch-" + backend.replace(":", "-").replace(",", "-")
    if name not in Backend.plugins:
        Backend.register_backend(name, _make, extended_api=True)
    return name


def _config(backend: str) -> Any:
    from distdbg.runtime.backends.registry import BackendConfig

    return BackendConfig(Backend(_registered(backend)))


def _make(options: Any, theirs: TorchGroupEngine) -> TorchEngine:
    return TorchEngine(theirs, current().control)
