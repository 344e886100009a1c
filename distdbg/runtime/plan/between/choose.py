"""Chooses the algorithm that carries out a call between hosts. All ranks choose alike.

1  what DISTDBG_ALGO says
2  what is estimated to be the fastest; mirrored slots only where the data of a rank fit its slot
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from distdbg.errors import ConfigError
from distdbg.ops.call import Kind
from distdbg.runtime.plan.between.all_gather import plan_all_gather
from distdbg.runtime.plan.between.all_reduce import plan_all_reduce
from distdbg.runtime.plan.between.all_to_all import can_bruck, plan_all_to_all
from distdbg.runtime.plan.between.broadcast import plan_broadcast
from distdbg.runtime.plan.between.estimate import estimate_s
from distdbg.runtime.plan.between.gather import plan_gather, plan_scatter
from distdbg.runtime.plan.between.lane_position import LanePosition
from distdbg.runtime.plan.between.mirror import plan_mirrored, published_nbytes
from distdbg.runtime.plan.between.reduce import plan_reduce
from distdbg.runtime.plan.between.reduce_scatter import plan_reduce_scatter
from distdbg.runtime.plan.names import NAMES
from distdbg.runtime.plan.overrides import choose_override
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan, Space, Step, StepKind

#: Bytes from one rank to another. What cannot leave at once is copied, since the arrays are the
#: program's again when calls differ.
MAX_EARLY_NBYTES = 256 << 10
#: Bytes of all messages of a rank.
_MAX_EARLY_NBYTES_OF_RANK = 4 << 20


_MAKERS: dict[Kind, Callable[[Problem, Topology, str], Plan]] = {
    Kind.ALL_REDUCE: plan_all_reduce,
    Kind.BROADCAST: plan_broadcast,
    Kind.REDUCE: plan_reduce,
    Kind.ALL_GATHER: plan_all_gather,
    Kind.GATHER: plan_gather,
    Kind.SCATTER: plan_scatter,
    Kind.REDUCE_SCATTER: plan_reduce_scatter,
    Kind.ALL_TO_ALL: plan_all_to_all,
}


#: Bytes of one rank, and of all together: every host gets the slots of all, and more leave its caches.
_MAX_MIRRORED_NBYTES = 256 << 10
_MAX_MIRRORED_NBYTES_OF_ALL = 512 << 10


@dataclass(frozen=True, slots=True)
class Size:
    """What all ranks know of the size of a call."""

    #: The largest block, which DISTDBG_ALGO goes by.
    block: int
    #: All blocks of the side that has more of them.
    total: int


def size_of(problem: Problem) -> Size:
    """The facts; nothing is known of all_to_all."""
    match problem.kind:
        case Kind.ALL_REDUCE | Kind.REDUCE:
            return Size(problem.in_nbytes[0], problem.in_nbytes[0])
        case Kind.GATHER:
            return Size(problem.in_nbytes[0], problem.in_nbytes[0] * problem.size)
        case Kind.BROADCAST:
            return Size(problem.out_nbytes[0], problem.out_nbytes[0])
        case Kind.SCATTER:
            return Size(problem.out_nbytes[0], problem.out_nbytes[0] * problem.size)
        case Kind.ALL_GATHER:
            return Size(max(problem.out_nbytes), sum(problem.out_nbytes))
        case Kind.REDUCE_SCATTER:
            return Size(max(problem.in_nbytes), sum(problem.in_nbytes))
        case _:
            return Size(0, 0)


def choose(problem: Problem, topology: Topology) -> str:
    """The name of the algorithm."""
    kind, size = problem.kind, size_of(problem)
    wanted = choose_override(topology.overrides, kind, size.block)
    if wanted is not None:
        return wanted
    if kind is Kind.ALL_TO_ALL:
        return "pairwise"
    return fastest(kind, size.total, topology, fits_slots=fits_slots(problem, topology))


def fits_slots(problem: Problem, topology: Topology) -> bool:
    """Whether one gate may hand on all data, which then travel before calls are compared."""
    published = published_nbytes(problem, topology)
    if published > _MAX_MIRRORED_NBYTES_OF_ALL:
        return False
    if problem.kind not in (Kind.BROADCAST, Kind.SCATTER):
        published = -(-published // problem.size)
    return published <= min(topology.slot_nbytes, _MAX_MIRRORED_NBYTES)


def fastest(kind: Kind, total: int, topology: Topology, *, fits_slots: bool = False) -> str:
    """The name of the algorithm that is estimated to be the fastest."""
    names = [name for name in names_for(kind, topology) if fits_slots or name != "slots"]
    return min(names, key=lambda name: estimate_s(kind, name, total, topology))


def names_for(kind: Kind, topology: Topology) -> tuple[str, ...]:
    """The algorithms that differ for such hosts: where hosts have one lane, leaders are the same."""
    names = NAMES[kind]
    if topology.layout.lanes > 1:
        return names
    return tuple(name for name in names if not name.endswith("_leaders"))


def plan_between(problem: Problem, topology: Topology) -> Plan:
    """The plan of this rank by the algorithm that is chosen."""
    return plan_by_name(problem, topology, choose(problem, topology))


def plan_by_name(problem: Problem, topology: Topology, name: str) -> Plan:
    """The plan of this rank by one algorithm; ConfigError where it does not fit the call."""
    if name == "slots":
        return plan_mirrored(problem, topology)
    if name == "bruck" and problem.kind is Kind.ALL_TO_ALL:
        position = LanePosition(problem, topology)
        if not can_bruck(position):
            raise ConfigError(
                "all_to_all=bruck wants blocks of one size and as many ranks on every host; use pairwise"
            )
    plan = _MAKERS[problem.kind](problem, topology, name)
    return send_early(plan) if topology.layout.largest == 1 else plan


def send_early(plan: Plan) -> Plan:
    """The same, with those SENDs before its only gate that depend on nothing that is received.

    That saves a round, but what goes to one rank goes to no other, and is copied nowhere. A receiver takes
    nothing to its place before it has compared; what was sent to ranks in another op is thrown away there.
    Only where each host has one rank, which stands at the gate for itself.
    """
    gates = [at for at, step in enumerate(plan.steps) if step.kind is StepKind.GATE]
    if len(gates) != 1:
        return plan  # what came early has to be taken before the next one
    [gate] = gates
    sorting = _Sorting()
    for step in plan.steps[gate + 1 :]:
        sorting.add(step)
    if not sorting.sent:
        return plan
    steps = (*plan.steps[:gate], *sorting.early, plan.steps[gate], *sorting.late)
    return replace(plan, steps=steps)


class _Sorting:
    """The steps behind the gate, one after the other."""

    def __init__(self) -> None:
        self.early: list[Step] = []
        self.late: list[Step] = []
        #: Bytes by peer.
        self.sent: dict[int, int] = {}
        #: Peers that get something later: messages of one rank to another stay in order.
        self.closed: set[int] = set()
        self.has_received = False

    def add(self, step: Step) -> None:
        if step.kind is StepKind.SEND:
            source = self.source_of(step)
            if source is not None and self.has_room(step):
                self.sent[step.peer] = self.sent.get(step.peer, 0) + step.nbytes
                self.early.append(source)
                return
            self.closed.add(step.peer)
        elif self.is_copy_to_send(step):
            self.early.append(step)
            return
        self.has_received |= step.kind is not StepKind.SEND and step.kind is not StepKind.COPY
        self.late.append(step)

    def has_room(self, step: Step) -> bool:
        nbytes = self.sent.get(step.peer, 0) + step.nbytes
        total = sum(self.sent.values()) + step.nbytes
        return (
            step.peer not in self.closed
            and nbytes <= MAX_EARLY_NBYTES
            and total <= _MAX_EARLY_NBYTES_OF_RANK
        )

    def is_copy_to_send(self, step: Step) -> bool:
        """Into scratch memory, of what is there before the gate."""
        return (
            step.kind is StepKind.COPY
            and step.dst is Space.SCRATCH
            and step.src is not Space.SLOT
            and not self.has_received
            and not _writers(self.late, step)
        )

    def source_of(self, send: Step) -> Step | None:
        """The SEND, from where its bytes are before the gate; nothing where they come later."""
        if send.src is Space.INPUT:
            return send  # no plan writes there
        writers = _writers(self.late, send)
        if not writers:
            return None if send.src is Space.SLOT else send
        [last] = writers[-1:]
        at = send.src_offset - last.dst_offset
        is_copied = last.kind is StepKind.COPY and last.src is Space.INPUT
        if len(writers) > 1 or not is_copied or at < 0 or at + send.nbytes > last.nbytes:
            return None
        offset = last.src_offset + at
        return replace(send, src=last.src, src_block=last.src_block, src_offset=offset)


def _writers(steps: Sequence[Step], reader: Step) -> list[Step]:
    """Those that write any of what it reads."""
    end = reader.src_offset + reader.nbytes
    return [
        step
        for step in steps
        if step.kind is not StepKind.SEND
        and (step.dst, step.dst_block) == (reader.src, reader.src_block)
        and (
            step.kind is StepKind.EXCHANGE
            or (step.dst_offset < end and reader.src_offset < step.dst_offset + step.nbytes)
        )
    ]
