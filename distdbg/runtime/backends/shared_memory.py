"""How the ranks of a group come together: a segment of shared memory for each host, and ways between hosts.

The first rank of a host makes its segment, a memfd that the others open through /proc/<pid>/fd/<fd>: it has
no name that could be left behind. The store says where; rank 0 also says what must be alike on all hosts.

    shape                  Shape of rank 0; in groups over several hosts, as is
    net/<rank>             where the hub of a rank listens
    link                   what rank 0 makes of what the hosts have measured; see net/run_links.py
    shared_memory          Announcement of rank 0: its host's segment
    shared_memory/<host>   of the first rank of every other host
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from distdbg.check.options import read_options
from distdbg.config import read_setting
from distdbg.control.words import to_error
from distdbg.errors import (
    ConfigError,
    DistBackendError,
    DistError,
    DistStoreError,
    NoSharedMemoryError,
    RendezvousError,
    format_ranks,
)
from distdbg.log.logs import get_logger
from distdbg.native import Control, Group, NativeError
from distdbg.record.durations import duration_text
from distdbg.record.handled_error import raise_instead
from distdbg.runtime.backends.failures import REACH_HINT, link_corrupted
from distdbg.runtime.backends.waiting import choose_patience, cores_of_ranks
from distdbg.runtime.net.hosts import host_of_rank
from distdbg.runtime.net.run_links import RunLinks
from distdbg.runtime.plan.link import NetworkLink, parse_link
from distdbg.runtime.plan.overrides import Override, parse_overrides
from distdbg.runtime.tuning.current import current_profile
from distdbg.runtime.tuning.profile import Profile, Ways

if TYPE_CHECKING:
    from distdbg.control.clock import JobClock
    from distdbg.runtime.members.member_liveness import NewGroupMembers
    from distdbg.runtime.net.between import HostLinks
    from distdbg.runtime.store import Store


_log = get_logger("runtime")

_KEY = "shared_memory"
_SHAPE_KEY = "shape"
_LINK_KEY = "link"

#: A slot holds at least this; small groups get more, see slot_nbytes_for().
MIN_SLOT_NBYTES = 32 << 10
MAX_SLOT_NBYTES = 512 << 10
#: What a variable may ask for.
LARGEST_SLOT_NBYTES = 1 << 30
#: All slots of a group together, both halves.
SLOTS_NBYTES = 8 << 20


def slot_nbytes_for(size: int) -> int:
    """Half a slot, so that large groups do not map gigabytes."""
    wanted = read_setting("DISTDBG_SLOT_NBYTES")
    if wanted is not None:
        if int(wanted) > LARGEST_SLOT_NBYTES:
            raise ConfigError(
                f"the variable DISTDBG_SLOT_NBYTES={wanted} is not valid; expected at most "
                f"{LARGEST_SLOT_NBYTES}"
            )
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
class MemoryDomain:
    """Where a process runs, as far as sharing memory is concerned."""

    host: str
    boot_id: str
    pid_namespace: str

    @classmethod
    def here(cls) -> MemoryDomain:
        """This process's."""
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot_id = file.read().strip()
        return cls(socket.gethostname(), boot_id, os.readlink("/proc/self/ns/pid"))

    def shares_memory_with(self, other: MemoryDomain) -> bool:
        """Whether processes here and there can map each other's memory."""
        return self.boot_id == other.boot_id and self.pid_namespace == other.pid_namespace


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the first rank of a host tells the others: where its segment is, and how to recognise it."""

    place: MemoryDomain
    pid: int
    fd: int
    cookie: int
    #: What is known of the host's machine; `Profile.to_plain`.
    profile: dict[str, object]

    def to_json(self) -> str:
        """For the store."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Announcement:
        """From the store."""
        facts = json.loads(text)
        return cls(
            MemoryDomain(**facts["place"]),
            facts["pid"],
            facts["fd"],
            facts["cookie"],
            facts["profile"],
        )


@dataclass(frozen=True, slots=True)
class SegmentShape:
    """What rank 0 decides for the whole group."""

    slot_nbytes: int
    channel_nbytes: int
    option_bits: int
    checksum_interval: int
    #: What connections between hosts prove that they know.
    link_cookie: int
    #: DISTDBG_ALGO and DISTDBG_LINK of rank 0, so that all ranks choose alike; the latter is also what was
    #: measured before in this run.
    algo: str
    link: str
    #: The profile of rank 0's machine; `Profile.to_plain`. What need not be alike is each rank's own.
    profile: dict[str, object]
    #: DISTDBG_LINK_CHECKSUM of rank 0: both ends of a connection must know.
    link_checksum: bool


@dataclass(frozen=True, slots=True)
class JoinedGroup:
    """A group whose ranks have come together."""

    group: Group
    overrides: tuple[Override, ...] = ()
    link: NetworkLink = field(default_factory=NetworkLink)
    ways: Ways = field(default_factory=Ways)
    #: Whether each rank of this host has a core to itself.
    has_own_core: bool = True


def connect(
    store: Store,
    *,
    rank: int,
    size: int,
    group_name: str,
    ranks_here: int,
    single_copy: bool,
    deadline_ns: int,
    clock: JobClock,
    control: Control | None,
    lives: NewGroupMembers,
    between: HostLinks,
) -> JoinedGroup:
    """Create or open the segment of this host and wait until all ranks are in the group.

    `deadline_ns` is job time: of `clock`, which reads the same page as `control`. `between`: the
    ways to other hosts.
    """
    hosts = between.hosts
    number = next((i for i, ranks in enumerate(hosts) if rank in ranks), 0)
    first = hosts[number][0] if hosts else 0
    finder = _Finder(store, group_name, deadline_ns, clock, lives)
    here = MemoryDomain.here()
    key = f"{_KEY}/{number}" if number else _KEY
    algo, link_words = (
        str(read_setting("DISTDBG_ALGO") or ""),
        str(read_setting("DISTDBG_LINK") or ""),
    )
    if hosts:  # a mistake is found before anybody waits
        parse_overrides(algo)
        if link_words:
            parse_link(link_words)
    cores = cores_of_ranks(pid for pid, _ in lives.identities if pid)
    # A mistake in the variable is found before anybody waits.
    profile = current_profile() if rank == first else Profile()
    if rank == 0 and between.links is not None:
        link_words = link_words or between.links.known()
    shape = _shape_for(size, algo, link_words, profile) if rank == 0 else None
    net_facts: tuple[Any, ...] = ()
    if hosts:
        if shape is not None:
            store.set(_SHAPE_KEY, json.dumps(asdict(shape)))
        else:
            shape = SegmentShape(**json.loads(finder.find(_SHAPE_KEY, 0)))
        net = between.open(shape.link_cookie)
        net_facts = (
            host_of_rank(hosts), net.hub, net.cookie, list(net.addresses), net.keepalive_s,
            net.streams, shape.link_checksum,
            net.ucx,
        )  # fmt: skip
    if rank == first:
        assert shape is not None  # rank 0 is the first of its host
        patience = choose_patience(ranks_here, cores, profile)
        cookie = secrets.randbits(63)
        group = Group.create(
            size,
            shape.slot_nbytes,
            shape.channel_nbytes,
            cookie,
            patience.spins,
            patience.yield_ns,
            single_copy,
            shape.option_bits,
            shape.checksum_interval,
            rank,
            *net_facts,
        )
        announced = Announcement(here, os.getpid(), group.fd, cookie, profile.to_plain())
        store.set(key, announced.to_json())
    else:
        found = Announcement.from_json(finder.find(key, first))
        if not here.shares_memory_with(found.place):
            raise NoSharedMemoryError(
                f"ranks {first} and {rank} of group '{group_name}' share no memory: one is on "
                f"{_describe(found.place, here)}, the other on {_describe(here, found.place)}",
                details=["they count as ranks of one host; nothing was exchanged"],
                hint="start all ranks on one host and in one container",
            )
        profile = Profile.from_plain(found.profile)
        patience = choose_patience(ranks_here, cores, profile)
        settings = (patience.spins, patience.yield_ns, single_copy)
        try:
            group = Group.open(rank, found.pid, found.fd, found.cookie, *settings, *net_facts)
        except NativeError as error:
            raise DistBackendError(
                f"rank {rank} cannot open the shared memory of group '{group_name}', "
                f"held by rank {first} (pid {found.pid})",
                details=[str(error)],
                hint=f"all ranks must run as one user; if rank {first} has died, start the job again",
            ) from error
    if control is not None:
        group.set_control(control)
    agreed = profile if shape is None else Profile.from_plain(shape.profile)
    ways = agreed.ways(max(map(len, hosts), default=size))
    group.tune(
        profile.stream_nbytes, profile.tile_nbytes, profile.pushed_nbytes, ways.exchanged_nbytes
    )
    try:
        group.join(deadline_ns, lives.identities)
        link = NetworkLink()
        if between.links is not None and shape is not None:
            link = _link(group, rank, shape, between.links, finder)
    except NativeError as error:
        facts = group.facts()
        missing = [r for r, (has_joined, *_) in enumerate(facts) if not has_joined]
        behind = [r for r, (_, gate, *_) in enumerate(facts) if gate < facts[rank][1]]
        if error.fault == "network":
            op = f"the creation of group '{group_name}'"
            corrupted = link_corrupted(
                str(error), op, group, lives.ranks, between.host_name, {"group": group_name}
            )
            group.close()
            raise_instead(corrupted, error)
        group.close()
        if error.fault == "peer_lost":
            peer, how = lives.first_cause(error.peer, lives.how(error.peer, str(error)))
            hint = REACH_HINT if error.detail else None
            host = between.host_name(peer)
            raise_instead(lives.lost(peer, how, host, error.detail, hint), error)
        if error.fault == "aborted":
            raise_instead(to_error(str(error), group=group_name), error)
        if error.fault != "timeout":
            raise DistBackendError(
                f"the ranks of group '{group_name}' could not be connected: {error}"
            ) from error
        raise_instead(too_late(group_name, size, missing, behind), error)
    overrides = parse_overrides(shape.algo if shape is not None else "")
    return JoinedGroup(group, overrides, link, ways, patience.spins > 0)


def too_late(
    group_name: str, size: int, missing: Sequence[int], behind: Sequence[int]
) -> RendezvousError:
    """The error when the time is over: for ranks that have not come, or did not go on with the others.

    Who was `missing` may have come while this rank gave up: then nobody is.
    """
    hint = "every member must call the function that makes the group, in the same order"
    what = f"{size - len(missing)} of {size} ranks joined group '{group_name}' in time"
    if missing:
        what += f"; missing ranks {format_ranks(missing)}"
    elif behind:
        what = (
            f"all {size} ranks joined group '{group_name}', but ranks {format_ranks(behind)} did not go on "
            "with it in time"
        )
        hint = "are those processes stopped, or is the machine busy? raise timeout= if they are only slow"
    else:
        what = f"all {size} ranks joined group '{group_name}', but not in time"
        hint = "raise timeout= if the last of them was only slow"
    return RendezvousError(
        what,
        joined=[r for r in range(size) if r not in missing],
        missing=list(missing or behind),
        expected=size,
        details=["ranks are numbered within the group"],
        hint=hint,
    )


def _link(
    group: Group, rank: int, shape: SegmentShape, links: RunLinks, finder: _Finder
) -> NetworkLink:
    """What rank 0 was told or has read, or else what is measured now and rank 0 makes of it."""
    if shape.link:
        return parse_link(shape.link)
    try:
        times, long_nbytes = group.measure_links(links.ring, finder.deadline_ns)
    except NativeError as error:
        if rank == 0:  # who had passed the last gate waits for its word
            with suppress(DistError):
                finder.store.set(_LINK_KEY, NetworkLink().words)
        if error.fault != "broken":
            raise
        return NetworkLink()  # a rank that was done has aborted the group: the next op says so
    if rank != 0:
        return parse_link(finder.find(_LINK_KEY, 0).decode())
    words = links.keep(times, long_nbytes)
    finder.store.set(_LINK_KEY, words)
    _log.info("messages between hosts: %s", words)
    return parse_link(words)


def _shape_for(size: int, algo: str, link: str, profile: Profile) -> SegmentShape:
    options = read_options()
    return SegmentShape(
        slot_nbytes_for(size),
        channel_nbytes_for(size),
        options.bits,
        options.checksum_interval,
        secrets.randbits(63),
        algo,
        link,
        profile.to_plain(),
        bool(read_setting("DISTDBG_LINK_CHECKSUM")),
    )


@dataclass(frozen=True, slots=True)
class _Finder:
    """Waits for what other ranks announce."""

    store: Store
    group_name: str
    deadline_ns: int
    clock: JobClock
    lives: NewGroupMembers

    def find(self, key: str, rank: int) -> bytes:
        left_s = max(0.001, (self.deadline_ns - self.clock.now_ns()) / 1e9)
        try:
            self.lives.wait(self.store, key, left_s)
        except DistStoreError as error:
            raise RendezvousError(
                f"rank {rank} of group '{self.group_name}' did not join within {duration_text(left_s)}",
                missing=[rank],
                hint="every member must call the function that makes the group, in the same order",
            ) from error
        return self.store.get(key)


def _describe(place: MemoryDomain, other: MemoryDomain) -> str:
    if place.boot_id != other.boot_id:
        return f"host {place.host}"
    return f"host {place.host} in {place.pid_namespace}"
