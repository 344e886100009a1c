"""Runs plans on a simulated network: when each message leaves and arrives, and how long all of it takes.

A discrete-event simulation of the very plans that ranks would carry out, for up to 65,536 ranks. A rank
gets on by itself until it needs a message that is not there, or a gate. Every host has one network card
which its ranks share, and which carries one message after the other each way. A message needs a core at
both ends, and the latency in between. A gate that hands on no bytes costs what a reduction of one header
costs; one that does, what collecting all slots costs.

A rank that dies stays where it is: what comes out then is who waits for whom, and since when.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from distdbg.runtime.plan.between.estimate import gate_s
from distdbg.runtime.plan.link import NetworkLink
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan, Step, StepKind

_WAITS = frozenset({StepKind.GATE, StepKind.HOST_GATE, StepKind.SEND, StepKind.RECV})


_GATE, _HOST_GATE = int(StepKind.GATE), int(StepKind.HOST_GATE)
_SEND, _RECV = int(StepKind.SEND), int(StepKind.RECV)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFaults:
    """What is not as it should be."""

    #: Ranks that begin so many seconds late.
    late_s: Mapping[int, float] = field(default_factory=dict)
    #: Hosts whose card needs so many times as long for a byte.
    slow_hosts: Mapping[int, float] = field(default_factory=dict)
    #: Ranks that die, and when.
    dead_s: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndlessWait:
    """A rank that waits for ever: for a rank's message, or for those that do not come to a gate."""

    rank: int
    on: tuple[int, ...]
    since_s: float


@dataclass(frozen=True, slots=True)
class MessageInTransit:
    """A message on its way."""

    source: int
    to: int
    nbytes: int
    begin_s: float
    end_s: float


@dataclass(slots=True, kw_only=True)
class Timing:
    """What a simulation in time has found."""

    #: When the last rank ended; of those that did.
    total_s: float = 0.0
    #: The longest chain of messages of which each had to wait for the one before, gates included.
    rounds: int = 0
    #: The most of any rank.
    messages: int = 0
    sent_nbytes: int = 0
    scratch_nbytes: int = 0
    connections: int = 0
    #: When each rank ended, if it did.
    ends_s: dict[int, float] = field(default_factory=dict)
    waits: list[EndlessWait] = field(default_factory=list)
    passages: list[MessageInTransit] = field(default_factory=list)


def time_plans(
    problem_of: Callable[[int], Problem],
    topology: Topology,
    make: Callable[[Problem, Topology], Plan],
    *,
    troubles: SimulatedFaults | None = None,
    keep_passages: bool = False,
) -> Timing:
    """Run the plans of all ranks."""
    layout = topology.layout
    schedules = [
        _Schedule(
            make(problem_of(rank), topology),
            layout.size,
            len(layout.hosts[layout.host_of(rank)]),
            topology.link,
        )
        for rank in range(layout.size)
    ]
    run = _Run(schedules, topology, troubles or SimulatedFaults(), keep_passages)
    run.all()
    return run.timing


class _Run:
    """The clocks of all ranks, cards and messages."""

    def __init__(
        self,
        schedules: Sequence[_Schedule],
        topology: Topology,
        troubles: SimulatedFaults,
        keep_passages: bool,
    ) -> None:
        self.schedules = schedules
        self.topology = topology
        self.link = topology.link
        self.layout = topology.layout
        self.troubles = troubles
        self.keep_passages = keep_passages
        self.timing = Timing()
        size, hosts = len(schedules), len(self.layout.hosts)
        self.cursors = [0] * size
        self.depths = [0] * size
        self.out_free_s = [0.0] * hosts
        self.in_free_s = [0.0] * hosts
        self.byte_s = [
            self.link.byte_s * troubles.slow_hosts.get(host, 1.0) for host in range(hosts)
        ]
        #: source * size + rank -> when the messages arrive, and after how many others.
        self.messages: dict[int, deque[tuple[float, int]]] = {}
        #: The key of the message that a rank waits for, and since when.
        self.waiting: dict[int, tuple[int, float]] = {}
        self.at_gate: list[tuple[int, float]] = []
        self.at_host_gate: list[list[tuple[int, float]]] = [[] for _ in range(hosts)]
        #: What the ranks at the gate have published: together, and the most of one.
        self.published = 0
        self.largest = 0
        self.heap = [(troubles.late_s.get(rank, 0.0), rank) for rank in range(size)]
        heapq.heapify(self.heap)

    def all(self) -> None:
        """Until nothing happens any more."""
        while self.heap:
            now_s, rank = heapq.heappop(self.heap)
            self.advance(rank, now_s)
        timing = self.timing
        timing.total_s = max(timing.ends_s.values(), default=0.0)
        timing.rounds = max(self.depths, default=0)
        for schedule in self.schedules:
            sent = [nbytes for _, nbytes in schedule.sent()]
            timing.messages = max(timing.messages, len(sent))
            timing.sent_nbytes = max(timing.sent_nbytes, sum(sent))
            timing.scratch_nbytes = max(timing.scratch_nbytes, schedule.scratch_nbytes)
            timing.connections = max(timing.connections, schedule.connections())
        self.note_waits()

    def advance(self, rank: int, now_s: float) -> None:
        """One message or gate of a rank; more where nobody else could come between."""
        schedule, at = self.schedules[rank], self.cursors[rank]
        dead_s = self.troubles.dead_s.get(rank) if self.troubles.dead_s else None
        if dead_s is not None and now_s >= dead_s:
            return
        if at == len(schedule):
            self.timing.ends_s[rank] = now_s + schedule.rest_s
            return
        kind = schedule.kinds[at]
        ready_s = now_s + schedule.work_s[at]
        if kind == _SEND:
            self.cursors[rank] = at + 1
            self.send(rank, schedule.peers[at], schedule.nbytes[at], ready_s)
        elif kind == _RECV:
            self.receive(rank, schedule.peers[at], ready_s)
        elif kind == _GATE:
            self.published += schedule.nbytes[at]
            self.largest = max(self.largest, schedule.nbytes[at])
            self.meet(self.at_gate, self.layout.size, rank, ready_s, is_host=False)
        else:
            host = self.layout.host_of(rank)
            crowd = len(self.layout.hosts[host])
            self.meet(self.at_host_gate[host], crowd, rank, ready_s, is_host=True)

    def send(self, rank: int, to: int, nbytes: int, now_s: float) -> None:
        """A message leaves through the card of one host and comes in through that of another."""
        link = self.link
        source, host = self.layout.host_of(rank), self.layout.host_of(to)
        ready_s = now_s + link.message_s
        begin_s = max(ready_s, self.out_free_s[source])
        self.out_free_s[source] = begin_s + nbytes * self.byte_s[source]
        there_s = max(begin_s + link.latency_s, self.in_free_s[host])
        slower_s = max(self.byte_s[source], self.byte_s[host])
        end_s = there_s + nbytes * max(slower_s, link.rank_byte_s)
        self.in_free_s[host] = there_s + nbytes * self.byte_s[host]
        key = rank * self.layout.size + to
        self.messages.setdefault(key, deque()).append((end_s, self.depths[rank] + 1))
        if self.keep_passages:
            self.timing.passages.append(MessageInTransit(rank, to, nbytes, begin_s, end_s))
        heapq.heappush(self.heap, (ready_s, rank))
        waited = self.waiting.get(to)
        if waited is not None and waited[0] == key:
            del self.waiting[to]
            self.take(key, to, waited[1])

    def receive(self, rank: int, source: int, now_s: float) -> None:
        key = source * self.layout.size + rank
        if key in self.messages:
            self.take(key, rank, now_s)
        else:
            self.waiting[rank] = (key, now_s)

    def take(self, key: int, rank: int, now_s: float) -> None:
        """The message is on its way or there."""
        queue = self.messages[key]
        end_s, depth = queue.popleft()
        if not queue:
            del self.messages[key]
        self.depths[rank] = max(self.depths[rank], depth)
        self.cursors[rank] += 1
        heapq.heappush(self.heap, (max(now_s, end_s) + self.link.message_s, rank))

    def meet(
        self,
        there: list[tuple[int, float]],
        crowd: int,
        rank: int,
        now_s: float,
        *,
        is_host: bool,
    ) -> None:
        """A rank has come to a gate; the last one opens it."""
        there.append((rank, now_s))
        if len(there) < crowd:
            return
        open_s = max(arrived_s for _, arrived_s in there)
        rounds = 0
        if is_host:
            open_s += self.link.host_gate_s
        else:
            open_s += gate_s(self.topology, self.published, self.largest)
            rounds = (len(self.layout.hosts) - 1).bit_length()
            self.published = self.largest = 0
        depth = max(self.depths[one] for one, _ in there) + rounds
        for one, _ in there:
            self.depths[one] = depth
            self.cursors[one] += 1
            heapq.heappush(self.heap, (open_s, one))
        there.clear()

    def note_waits(self) -> None:
        """Note who has not ended, and for whom it waits."""
        size = self.layout.size
        for rank, (key, since_s) in self.waiting.items():
            self.timing.waits.append(EndlessWait(rank, (key // size,), since_s))
        for crowd, there in [
            (range(size), self.at_gate),
            *zip(self.layout.hosts, self.at_host_gate, strict=True),
        ]:
            missing = tuple(sorted({*crowd} - {rank for rank, _ in there})) if there else ()
            self.timing.waits += [EndlessWait(rank, missing, since_s) for rank, since_s in there]
        self.timing.waits.sort(key=lambda wait: wait.rank)


class _Schedule:
    """The messages and gates of one rank, in order, and its own work before each."""

    __slots__ = ("kinds", "nbytes", "peers", "rest_s", "scratch_nbytes", "work_s")

    def __init__(self, plan: Plan, size: int, here: int, link: NetworkLink) -> None:
        self.kinds = bytearray()
        self.peers = array("l")
        self.nbytes = array("q")
        self.work_s = array("d")
        self.scratch_nbytes = plan.scratch_nbytes
        work_s = 0.0
        for step in plan.steps:
            if step.kind in _WAITS:
                self.kinds.append(step.kind)
                self.peers.append(step.peer)
                self.nbytes.append(step.nbytes)
                self.work_s.append(work_s)
                work_s = 0.0
            else:
                work_s += _work_of_s(step, size, here, link)
        #: The work after the last of them.
        self.rest_s = work_s

    def __len__(self) -> int:
        return len(self.kinds)

    def sent(self) -> Iterator[tuple[int, int]]:
        """(peer, nbytes) of every message that the rank sends."""
        for kind, peer, nbytes in zip(self.kinds, self.peers, self.nbytes, strict=True):
            if kind == StepKind.SEND:
                yield peer, nbytes

    def connections(self) -> int:
        """With how many ranks of other hosts it exchanges messages."""
        return len({peer for peer in self.peers if peer >= 0})


def _work_of_s(step: Step, size: int, here: int, link: NetworkLink) -> float:
    """What a rank needs for a step that waits for nobody; `here` ranks are on its host."""
    match step.kind:
        case StepKind.SPREAD:
            return size * step.nbytes * link.copy_byte_s
        case StepKind.COPY | StepKind.PULL | StepKind.PUSH:
            return step.nbytes * link.copy_byte_s
        case StepKind.FOLD_ALL | StepKind.FOLD_TO:
            return size * step.nbytes * link.fold_byte_s
        case StepKind.FOLD_HOST:
            return here * step.nbytes * link.fold_byte_s
        case StepKind.FOLD_AFTER | StepKind.FOLD_BEFORE:
            return step.nbytes * link.fold_byte_s
        case StepKind.EXCHANGE:
            return step.nbytes * link.copy_byte_s + 2 * link.host_gate_s
        case StepKind.GATE | StepKind.HOST_GATE | StepKind.SEND | StepKind.RECV:
            return 0.0
        case StepKind.DIVIDE:
            # Nothing but for averages.
            return 0.0
