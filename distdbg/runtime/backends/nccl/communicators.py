"""Makes communicators: of a group, by its members when the first op needs it or at once with device_id=,
and of two of its ranks, by these.

Before NCCL is called the ranks tell the first of them who they are, through the group's store. It says
what NCCL would refuse later and in worse words (two ranks on one GPU, different versions), or hands out the
unique id. NCCL has no form of ncclCommInitRank that ends by itself when a rank never calls it, so it is
called on a thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from distdbg.errors import (
    DistBackendError,
    DistError,
    DistStoreError,
    OpTimeout,
    PeerLost,
    RankLeft,
    format_ranks,
)
from distdbg.record.durations import duration_text
from distdbg.runtime.backends.checked.worker_threads import WorkerThreads
from distdbg.runtime.backends.nccl.failures import advice, is_nccls, to_error
from distdbg.runtime.backends.nccl.library import NcclLibrary
from distdbg.runtime.backends.nccl.wire import version_text

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store

#: How often the members are looked at while the store is waited for.
_SLICE_S: Final = 0.3
#: A store may round a timeout down.
_EARLY_S: Final = 0.02


class Makers:
    """The ranks of a group that make one communicator together: all of them, or two."""

    def __init__(self, group: ProcessGroup, pair: tuple[int, int] | None = None) -> None:
        self.group: Final = group
        #: Their numbers in the group; their place here is their rank in the communicator.
        self.ranks: Final = tuple(range(group.size())) if pair is None else tuple(sorted(pair))
        self.is_pair: Final = pair is not None
        self.names: Final = [group.ranks[rank] for rank in self.ranks]
        self.me: Final = self.ranks.index(group.rank())
        whose = f"group '{group.label}'"
        if self.is_pair:
            whose = f"ranks {self.names[0]} and {self.names[-1]} of {whose}"
        #: What messages call it.
        self.what: Final = f"the NCCL communicator of {whose}"
        self._prefix = f"nccl/pair/{self.ranks[0]}-{self.ranks[-1]}" if self.is_pair else "nccl"

    @property
    def verdict(self) -> str:
        """The key under which the first one says what comes of it."""
        return f"{self._prefix}/id"

    @property
    def places(self) -> list[str]:
        """The keys under which each says who it is."""
        return [f"{self._prefix}/rank/{rank}" for rank in self.ranks]


def make_communicator(
    library: NcclLibrary,
    group: ProcessGroup,
    store: Store,
    device: int,
    watch: Callable[[], None],
    pair: tuple[int, int] | None = None,
) -> Any:
    """The communicator of the group's ranks, or of two of them, on this rank's device; all of these call it.

    `watch` is called while the others are waited for, and raises what means that one of them does not come.
    """
    makers = Makers(group, pair)
    deadline = Deadline(makers, makers.what, watch)
    store.set(makers.places[makers.me], json.dumps(_place(library, group, device)))
    if makers.me == 0:
        store.set(makers.verdict, _decide(library, makers, store, deadline))
    verdict = json.loads(_await(store, [makers.verdict], deadline)[0])
    if "error" in verdict:
        raise DistBackendError(verdict["error"], details=verdict["details"], hint=verdict["hint"])
    unique_id = bytes.fromhex(verdict["id"])

    def open_it() -> Any:
        with library.cupy.cuda.Device(device):
            return library.open_communicator(len(makers.ranks), unique_id, makers.me)

    return carry_out(open_it, library, makers, makers.what, watch)


def carry_out(
    make: Callable[[], Any],
    library: NcclLibrary,
    makers: Makers,
    what: str,
    watch: Callable[[], None] | None = None,
) -> Any:
    """Call what makes a communicator, until one of them is gone or the group's timeout is over."""
    hands = WorkerThreads(makers.group.label)
    deadline = Deadline(makers, what, watch)
    me = makers.names[makers.me]
    others = [rank for rank in makers.names if rank != me]  # for which NCCL waits, nobody can tell

    def look() -> None:
        deadline.check(lambda: others)

    try:
        return hands.carry_out(make, look)
    except DistError:
        raise
    except Exception as error:
        if not is_nccls(error, library):
            raise
        raise to_error(error, what, library) from error
    finally:
        hands.close(0.0)


def _place(library: NcclLibrary, group: ProcessGroup, device: int) -> dict[str, Any]:
    host = group.members[group.rank()].process.boot_id if group.members else ""
    bus_id = library.cupy.cuda.Device(device).pci_bus_id
    return {"version": library.version, "host": host, "bus_id": bus_id, "device": device}


def _decide(library: NcclLibrary, makers: Makers, store: Store, deadline: Deadline) -> str:
    places = [json.loads(place) for place in _await(store, makers.places, deadline)]
    wrong = what_is_wrong(makers.group.label, makers.names, places)
    if wrong is not None:
        return json.dumps({"error": wrong, "details": [], "hint": advice(wrong)})
    try:
        return json.dumps({"id": library.new_id().hex()})
    except Exception as error:
        if not is_nccls(error, library):
            raise
        reported = to_error(error, deadline.what, library)
        # The others wait for an id: they are told instead.
        return json.dumps(
            {"error": reported.what, "details": reported.details, "hint": reported.hint}
        )


def watch_members(group: ProcessGroup) -> Callable[[], None]:
    """Of a communicator that is destroyed: raises when a member is gone, or the group's timeout is over."""
    makers = Makers(group)
    others = [rank for rank in makers.names if rank != makers.names[makers.me]]
    deadline = Deadline(makers, makers.what, deed="destroyed")
    return lambda: deadline.check(lambda: others)


class Deadline:
    """Of making or destroying one communicator."""

    def __init__(
        self,
        makers: Makers,
        what: str,
        watch: Callable[[], None] | None = None,
        deed: str = "made",
    ) -> None:
        self.what = what
        self._deed = deed
        self.makers = makers
        self._group = makers.group
        self._watch = watch
        self._clock = makers.group.world.control
        self._began_ns = self._clock.now_ns()

    @property
    def left_s(self) -> float:
        """How long there is to wait."""
        return self._group.timeout_s - self._waited_s

    def check(self, missing: Callable[[], Sequence[int]]) -> None:
        """Raise when the job was ended, a maker is gone, or the time is over; then `missing` is asked."""
        self._clock.check(group=self._group.label)
        members = self._group.members
        for rank in self.makers.ranks if members else ():
            watched = members[rank].watched
            if watched is not None and watched.is_dead():
                raise _gone(
                    f"{self.what} was not {self._deed}",
                    self.makers,
                    self._group.ranks[rank],
                    watched.how(),
                )
        if self._watch is not None:
            self._watch()
        if self.left_s <= 0:
            raise _late(f"{self.what} was not {self._deed}", self.makers, self._waited_s, missing())

    @property
    def _waited_s(self) -> float:
        return (self._clock.now_ns() - self._began_ns) / 1e9


def _await(store: Store, keys: Sequence[str], deadline: Deadline) -> list[bytes]:
    """The values of keys that other ranks set; what the store says but that they are not there is raised."""
    makers = deadline.makers

    def missing() -> list[int]:
        places = zip(makers.names, makers.places, strict=True)
        late = [name for name, key in places if not store.check([key])]
        return late or [makers.names[0]]  # it has to say what comes of it

    while not store.check(list(keys)):
        deadline.check(missing)
        slice_s = max(0.001, min(deadline.left_s, _SLICE_S))
        began = time.monotonic()
        try:
            store.wait(list(keys), timedelta(seconds=slice_s))
        except DistStoreError:
            if time.monotonic() - began < slice_s - _EARLY_S:
                raise  # not for the time: the store has another reason
    return list(store.multi_get(list(keys)))


def what_is_wrong(label: str, names: Sequence[int], places: Sequence[dict[str, Any]]) -> str | None:
    """What NCCL would refuse, by what each rank says of itself; None where nothing is wrong."""
    versions = {place["version"]: name for name, place in zip(names, places, strict=True)}
    if len(versions) > 1:
        (one, first), (two, second) = list(versions.items())[:2]
        return (
            f"mismatched NCCL versions in group '{label}': {version_text(one)} on rank {first}, "
            f"{version_text(two)} on rank {second}"
        )
    seen: dict[tuple[str, str], int] = {}
    for name, place in zip(names, places, strict=True):
        other = seen.setdefault((place["host"], place["bus_id"]), name)
        if other != name:
            return (
                f"duplicate GPU in group '{label}': ranks {other} and {name} are both on "
                f"cuda:{place['device']} ({place['bus_id']})"
            )
    return None


def _by_whom(makers: Makers) -> str:
    return (
        f"its ranks are {format_ranks(makers.names)}; all of them make it, and destroy it, together"
    )


def _gone(what: str, makers: Makers, peer: int, how: str) -> PeerLost:
    # Who ended by itself did not call what the others call: a mismatch as well.
    kind = RankLeft if how.startswith("exited") else PeerLost
    return kind(
        f"{what}: rank {peer} {how}",
        peer=peer,
        how=how,
        group=makers.group.label,
        details=[_by_whom(makers)],
    )


def _late(what: str, makers: Makers, waited_s: float, missing: Sequence[int]) -> OpTimeout:
    whom = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {format_ranks(missing)}"
    return OpTimeout(
        f"{what} within {duration_text(waited_s)}: it waits for {whom}",
        missing=missing,
        waited_s=waited_s,
        group=makers.group.label,
        details=[_by_whom(makers)],
        hint="the other side of a message has to be called, in no batch as well"
        if makers.is_pair
        else "begin with a collective, or make it with the group: device_id=",
    )
