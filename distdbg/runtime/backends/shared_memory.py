"""How the ranks of a group share memory: rank 0 makes the segment, the store says where.

The segment is a memfd of rank 0, opened by the others through /proc/<pid>/fd/<fd>: it has no name
that could be left behind. Works among ranks of one user in one pid namespace of one host; anything
else is refused here, with the reason.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from distdbg.check.options import read_options
from distdbg.config import read_setting
from distdbg.control.words import to_error
from distdbg.errors import (
    DistBackendError,
    DistStoreError,
    NoSharedMemoryError,
    RendezvousError,
    format_ranks,
)
from distdbg.native import Control, Group, NativeError
from distdbg.record.durations import duration_text
from distdbg.runtime.backends.waiting import Patience

if TYPE_CHECKING:
    from distdbg.control.clock import JobClock
    from distdbg.runtime.lives import Lives
    from distdbg.runtime.store import Store

_KEY = "shared_memory"

_MOST_PLACES = 16
#: A slot holds at least this; small groups get more, see slot_nbytes_for().
MIN_SLOT_NBYTES = 32 << 10
MAX_SLOT_NBYTES = 512 << 10
#: All slots of a group together, both halves.
SLOTS_NBYTES = 8 << 20


def slot_nbytes_for(size: int) -> int:
    """Half a slot, so that large groups do not map gigabytes."""
    wanted = read_setting("DISTDBG_SLOT_NBYTES")
    if wanted is not None:
        # A cache line for each rank is the least that an exchange needs.
        return max(int(wanted) // 64 * 64, 4096, 64 * size)
    return max(MIN_SLOT_NBYTES, min(MAX_SLOT_NBYTES, SLOTS_NBYTES // (2 * size) // 4096 * 4096))


def channel_nbytes_for(size: int) -> int:
    """One direction of one pair; a power of two. There are size * size of them."""
    nbytes = 256 << 10
    while nbytes > (4 << 10) and nbytes * size * size > (64 << 20):
        nbytes //= 2
    return nbytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs, as far as sharing memory is concerned."""

    host: str
    boot_id: str
    pid_namespace: str

    @classmethod
    def here(cls) -> Place:
        """This process's."""
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot_id = file.read().strip()
        return cls(socket.gethostname(), boot_id, os.readlink("/proc/self/ns/pid"))

    def shares_memory_with(self, other: Place) -> bool:
        """Whether processes here and there can map each other's memory."""
        return self.boot_id == other.boot_id and self.pid_namespace == other.pid_namespace


@dataclass(frozen=True, slots=True)
class Announcement:
    """What rank 0 tells the others: where its segment is, and how to recognise it."""

    place: Place
    pid: int
    fd: int
    cookie: int

    def to_json(self) -> str:
        """For the store."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Announcement:
        """From the store."""
        facts = json.loads(text)
        return cls(Place(**facts["place"]), facts["pid"], facts["fd"], facts["cookie"])


def connect(
    store: Store,
    *,
    rank: int,
    size: int,
    group_name: str,
    patience: Patience,
    single_copy: bool,
    deadline_ns: int,
    clock: JobClock,
    control: Control | None,
    lives: Lives,
) -> Group:
    """Create or open the group's segment and wait until all ranks are in it.

    `deadline_ns` is job time: of `clock`, which reads the same page as `control`.
    """
    _check_near(group_name, lives)
    here = Place.here()
    settings = (patience.spins, patience.yield_ns, single_copy)
    if rank == 0:
        cookie = secrets.randbits(63)
        options = read_options()
        group = Group.create(
            size,
            slot_nbytes_for(size),
            channel_nbytes_for(size),
            cookie,
            *settings,
            options.bits,
            options.checksum_interval,
        )
        store.set(_KEY, Announcement(here, os.getpid(), group.fd, cookie).to_json())
    else:
        found = _find(store, group_name, deadline_ns, clock, lives)
        if not here.shares_memory_with(found.place):
            raise NoSharedMemoryError(
                f"ranks 0 and {rank} of group '{group_name}' share no memory: one is on "
                f"{_describe(found.place, here)}, the other on {_describe(here, found.place)}",
                details=["the CPU backend connects the ranks of one host; nothing was exchanged"],
                hint="start all ranks on one host and in one container",
            )
        try:
            group = Group.open(rank, found.pid, found.fd, found.cookie, *settings)
        except NativeError as error:
            raise DistBackendError(
                f"rank {rank} cannot open the shared memory of group '{group_name}', "
                f"held by rank 0 (pid {found.pid})",
                details=[str(error)],
                hint="all ranks must run as one user; if rank 0 has died, start the job again",
            ) from error
    if control is not None:
        group.set_control(control)
    try:
        group.join(deadline_ns, lives.identities)
    except NativeError as error:
        missing = [r for r, facts in enumerate(group.facts()) if not facts[0]]
        group.close()
        if error.fault == "peer_lost":
            raise lives.lost(error.peer, lives.how(error.peer, str(error))) from None
        if error.fault == "aborted":
            raise to_error(str(error), group=group_name) from None
        if error.fault != "timeout":
            raise DistBackendError(
                f"the ranks of group '{group_name}' could not be connected: {error}"
            ) from error
        raise RendezvousError(
            f"{size - len(missing)} of {size} ranks joined group '{group_name}' in time; "
            f"missing ranks {format_ranks(missing)}",
            joined=[r for r in range(size) if r not in missing],
            missing=missing,
            expected=size,
            details=["ranks are numbered within the group"],
            hint="every member must call the function that makes the group, in the same order",
        ) from None
    return group


def _check_near(group_name: str, lives: Lives) -> None:
    """Refuse members that share no memory, on every rank at once: all know where all of them are."""
    if all(life.is_near for life in lives.members):
        return
    places: dict[tuple[str, str, int], list[int]] = {}
    for rank, life in zip(lives.ranks, lives.members, strict=True):
        process = life.process
        key = process.host, process.boot_id, process.pid_namespace
        places.setdefault(key, []).append(rank)
    details = [
        f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}: host {host}, "
        f"pid namespace {namespace}"
        for (host, _, namespace), ranks in places.items()
    ]
    kernels = {boot_id for _, boot_id, _ in places}
    where = "hosts" if len(kernels) > 1 else "containers of one host"
    raise NoSharedMemoryError(
        f"the ranks of group '{group_name}' share no memory: they are on {len(places)} {where}",
        details=[*details[:_MOST_PLACES], "nothing was exchanged"],
        hint="start all ranks on one host and in one container",
    )


def _find(
    store: Store, group_name: str, deadline_ns: int, clock: JobClock, lives: Lives
) -> Announcement:
    left_s = max(0.001, (deadline_ns - clock.now_ns()) / 1e9)
    try:
        lives.wait(store, _KEY, left_s)
    except DistStoreError as error:
        raise RendezvousError(
            f"rank 0 of group '{group_name}' did not join within {duration_text(left_s)}",
            missing=[0],
            hint="every member must call the function that makes the group, in the same order",
        ) from error
    return Announcement.from_json(store.get(_KEY))


def _describe(place: Place, other: Place) -> str:
    if place.boot_id != other.boot_id:
        return f"host {place.host}"
    return f"host {place.host} in {place.pid_namespace}"
