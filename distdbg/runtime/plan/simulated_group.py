"""Steps on symbolic memory: what each does, and what is wrong with it.

A `SimulatedGroup` has the memories of all ranks of a group and carries out single steps; in which order
ranks get on, and when they wait, is `simulate`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from distdbg.ops.call import Kind
from distdbg.runtime.plan.accesses import AccessLog, UnreadSends
from distdbg.runtime.plan.contents import (
    Content,
    Interval,
    SymbolicMemory,
    Value,
    divided,
    folded,
    moved,
)
from distdbg.runtime.plan.faults import Fault, FaultKind
from distdbg.runtime.plan.gloo_order import down_from
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.results import in_place_block
from distdbg.runtime.plan.steps import Plan, Space, Step, StepKind


class SimulatedHost:
    """The ranks of one host, and how far they are."""

    def __init__(self, number: int, ranks: Sequence[int], next_gate: int, gates_left: int) -> None:
        self.number = number
        self.ranks = ranks
        self.next_gate = next_gate
        self.gates_left = gates_left
        self.gates_passed = 0
        self.log = AccessLog()
        #: What the last gate has brought of the slots of other hosts' ranks, until the next one.
        self.mirrors: dict[int, SymbolicMemory] = {}


class SimulatedGroup:
    """The memories of all ranks while plans run."""

    def __init__(
        self,
        problems: Sequence[Problem],
        plans: Sequence[Plan],
        topology: Topology,
        hosts: Sequence[SimulatedHost],
        in_place: bool,
    ) -> None:
        self.problems = problems
        self.plans = plans
        self.topology = topology
        self.hosts = hosts
        self.host_of = {rank: host for host in hosts for rank in host.ranks}
        self.faults: list[Fault] = []
        self.size = len(plans)
        self.inputs: list[list[SymbolicMemory]] = []
        self.outputs: list[list[SymbolicMemory]] = []
        self.slots = [[SymbolicMemory(topology.slot_nbytes) for _ in (0, 1)] for _ in plans]
        self.scratch = [SymbolicMemory(plan.scratch_nbytes) for plan in plans]
        self.sent = [UnreadSends() for _ in plans]
        #: For each pair of ranks the messages on their way: their bytes, from 0 on, how many, and how many
        #: gates their sender had passed.
        self.messages: dict[tuple[int, int], deque[tuple[list[Interval], int, int]]] = {}
        for problem in problems:
            inputs = [
                SymbolicMemory(nbytes, (Value(((problem.rank, block, 0),), 0), 0))
                for block, nbytes in enumerate(problem.in_nbytes)
            ]
            outputs = [SymbolicMemory(nbytes) for nbytes in problem.out_nbytes]
            pair = in_place_block(problem) if in_place else None
            # The array that a broadcast sends is also what root ends up with, in place or not.
            if problem.kind is Kind.BROADCAST and problem.rank == problem.root:
                pair = (0, 0)
            if pair is not None:
                outputs[pair[1]] = inputs[pair[0]]
            self.inputs.append(inputs)
            self.outputs.append(outputs)
        #: The values of folds, so that equal ones are one object and compare at once.
        self.fold_cache: dict[tuple[bool, tuple[Content, ...]], Content] = {}

    def fault(self, kind: FaultKind, rank: int, step: int, text: str) -> None:
        self.faults.append(Fault(kind=kind, rank=rank, step=step, text=text))

    # ------------------------------------------------------------------------------ gates

    def pass_gate(self, host: SimulatedHost) -> None:
        """All ranks of the host are there: what was read and written is compared."""
        self.faults += host.log.take_races()
        host.gates_left -= 1
        host.gates_passed += 1
        host.next_gate += 1
        host.mirrors = {}
        for rank in host.ranks:
            self.slots[rank][host.next_gate & 1].clear()

    def mirror(self, nbytes_of: Sequence[int]) -> None:
        """A gate of all hosts hands on the beginnings of all slots, and all messages have left."""
        for rank in range(self.size):
            self.sent[rank].clear()
            self.look_for_late(rank)
            if len(self.hosts) == 1 or nbytes_of[rank] == 0:
                continue
            half = self.slots[rank][(self.host_of[rank].next_gate - 1) & 1]
            for host in self.hosts:
                if host is not self.host_of[rank]:
                    copy = host.mirrors[rank] = SymbolicMemory(nbytes_of[rank])
                    for begin, end, content in half.read(0, nbytes_of[rank]):
                        copy.write(begin, end, content)

    def look_for_late(self, source: int) -> None:
        """What was sent before the first gate is thrown away at the second."""
        if self.host_of[source].gates_passed < 2:
            return
        for (sender, to), messages in self.messages.items():
            if sender == source and any(passed == 0 for _, _, passed in messages):
                text = f"rank {to} takes an early message behind another gate"
                self.fault(FaultKind.NOT_RECEIVED, source, -1, text)

    # ------------------------------------------------------------------------------ steps

    def step(self, rank: int, at: int, step: Step) -> None:
        """Carry out a step that does not wait."""
        match step.kind:
            case StepKind.COPY | StepKind.PULL | StepKind.PUSH | StepKind.SPREAD:
                self.copy(rank, at, step)
            case StepKind.FOLD_TO | StepKind.FOLD_ALL:
                ranks = range(self.size) if step.first < 0 else down_from(step.first, self.size)
                self.fold(rank, at, step, ranks, divides=True)
            case StepKind.FOLD_HOST:
                self.fold(rank, at, step, self.host_of[rank].ranks, divides=False)
            case StepKind.FOLD_AFTER | StepKind.FOLD_BEFORE | StepKind.DIVIDE:
                self.fold_own(rank, at, step)
            case StepKind.EXCHANGE:
                self.exchange(rank, at)
            case StepKind.SEND:
                self.send(rank, at, step)
            case StepKind.RECV:
                self.receive(rank, at, step)
            case StepKind.GATE | StepKind.HOST_GATE:
                raise AssertionError("a gate is passed, not carried out")

    def copy(self, rank: int, at: int, step: Step) -> None:
        owner = step.peer if step.kind in (StepKind.PULL, StepKind.SPREAD) else rank
        if step.kind is not StepKind.COPY and not 0 <= step.peer < self.size:
            self.fault(FaultKind.OUT_OF_BOUNDS, rank, at, f"there is no rank {step.peer}")
            return
        if step.kind is StepKind.COPY:
            self.find_overlap(rank, at, step)
            is_self = step.src_offset == step.dst_offset and step.dst is not Space.INPUT
            if is_self and self.is_same_memory(rank, at, step):
                return
        distance = step.dst_offset - step.src_offset
        parts = self.source(rank, at, step, owner)
        self.store(
            rank, at, step, [(b + distance, e + distance, moved(c, distance)) for b, e, c in parts]
        )

    def memory(
        self, rank: int, at: int, space: Space, block: int, owner: int, *, write: bool
    ) -> SymbolicMemory | None:
        host = self.host_of[rank]
        is_near = self.host_of[owner] is host
        match space:
            case Space.INPUT:
                blocks = self.inputs[owner]
            case Space.OUTPUT:
                blocks = self.outputs[owner]
            case Space.SCRATCH:
                return self.scratch[rank]
            case Space.SLOT:
                if not is_near:
                    mirror = host.mirrors.get(owner)
                    if mirror is None:
                        self.note_far(rank, at, space, owner)
                    return mirror
                half = host.next_gate if write else host.next_gate - 1
                return self.slots[owner][half & 1]
        if not is_near:
            self.note_far(rank, at, space, owner)
            return None
        if 0 <= block < len(blocks):
            return blocks[block]
        text = f"rank {owner} has no {space.name} block {block}"
        self.fault(FaultKind.OUT_OF_BOUNDS, rank, at, text)
        return None

    def note_far(self, rank: int, at: int, space: Space, owner: int) -> None:
        """Memory that this rank cannot see."""
        text = f"reads {space.name} of rank {owner}"
        self.fault(FaultKind.OTHER_HOST, rank, at, text)

    def source(self, rank: int, at: int, step: Step, owner: int) -> list[Interval]:
        """Read a step's source on `owner`; what is wrong with that is noted."""
        if step.src is Space.SCRATCH and owner != rank:
            self.note_far(rank, at, step.src, owner)
            return []
        return self.read(rank, at, step, (step.src, step.src_block, step.src_offset), owner)

    def read(
        self, rank: int, at: int, step: Step, place: tuple[Space, int, int], owner: int
    ) -> list[Interval]:
        """Read the step's number of bytes anywhere on `owner`."""
        space, block, begin = place
        end = begin + step.nbytes
        host = self.host_of[rank]
        memory = self.memory(rank, at, space, block, owner, write=False)
        if memory is None:
            return []
        if begin < 0 or end > memory.nbytes:
            text = f"reads [{begin}, {end}) of {memory.nbytes} bytes"
            self.fault(FaultKind.OUT_OF_BOUNDS, rank, at, text)
            return []
        if space is Space.SLOT and host.gates_passed == 0:
            self.fault(FaultKind.TOO_EARLY, rank, at, "reads a slot that no rank has filled")
        # An exchange finds its own way to the bytes, and ends with the gate that takes.
        if owner != rank and step.kind is not StepKind.EXCHANGE:
            self.note_remote_access(rank, at, space, owner, "reads")
        if owner != rank or space in (Space.INPUT, Space.OUTPUT):
            host.log.of(memory, owner).reads.append((begin, end, rank, at))
        return memory.read(begin, end)

    def note_remote_access(self, rank: int, at: int, space: Space, owner: int, does: str) -> None:
        """Whether an array of a peer may be used now."""
        if space is Space.SLOT:
            return
        host = self.host_of[rank]
        if host.gates_passed == 0:
            text = f"{does} a peer's array, whose address is unknown"
            self.fault(FaultKind.TOO_EARLY, rank, at, text)
        if host.gates_left == 0:
            text = "the peer may have left and reused its array"
            self.fault(FaultKind.NOT_RELEASED, rank, at, text)
        if not self.topology.single_copy and space not in self.plans[owner].exposes:
            self.fault(FaultKind.NOT_REACHABLE, rank, at, f"{does} {space.name} of a peer")

    def store(self, rank: int, at: int, step: Step, parts: list[Interval]) -> None:
        """Write to a step's destination, on whichever ranks that is."""
        owners: Sequence[int] = (rank,)
        if step.kind is StepKind.SPREAD:
            owners = [
                o for o in self.host_of[rank].ranks if not self.is_one_place(rank, at, step, o)
            ]
        elif step.kind is StepKind.FOLD_TO and step.peer < 0:
            owners = self.host_of[rank].ranks
        elif step.kind in (StepKind.FOLD_TO, StepKind.PUSH):
            owners = (step.peer,)
        for owner in owners:
            self.store_at(rank, at, step, parts, owner)

    def is_one_place(self, rank: int, at: int, step: Step, owner: int) -> bool:
        """Whether a SPREAD's source and its destination on `owner` are the same bytes."""
        src = self.memory(rank, at, step.src, step.src_block, step.peer, write=False)
        dst = self.memory(rank, at, step.dst, step.dst_block, owner, write=False)
        return src is dst and step.src_offset == step.dst_offset

    def store_at(self, rank: int, at: int, step: Step, parts: list[Interval], owner: int) -> None:
        """The same on one rank; what is wrong with that is noted."""
        if step.dst is Space.INPUT:
            self.fault(FaultKind.READ_ONLY, rank, at, "the input belongs to the user")
            return
        begin, end = step.dst_offset, step.dst_offset + step.nbytes
        memory = self.memory(rank, at, step.dst, step.dst_block, owner, write=True)
        if memory is None:
            return
        if owner != rank:
            self.note_remote_access(rank, at, step.dst, owner, "writes")
        limit = memory.nbytes
        if step.dst is Space.SLOT:
            limit = min(limit, self.plans[rank].slot_nbytes)
        if begin < 0 or end > limit:
            kind = FaultKind.SLOT_OVERFLOW if step.dst is Space.SLOT else FaultKind.OUT_OF_BOUNDS
            self.fault(kind, rank, at, f"writes [{begin}, {end}) of {limit} bytes")
            return
        host = self.host_of[rank]
        sending = self.sent[owner].overlapping(memory, begin, end)
        if sending is not None:
            text = f"[{begin}, {end}) overlaps what step {sending} sends"
            self.fault(FaultKind.SENT_REWRITTEN, rank, at, text)
        accesses = host.log.of(memory, owner)
        if step.dst is Space.SLOT:
            if host.gates_left == 0:
                self.fault(FaultKind.TOO_LATE, rank, at, "fills a slot for the next plan's gate")
            for other_begin, other_end, _, other in accesses.writes:
                if begin < other_end and other_begin < end:
                    text = f"[{begin}, {end}) overlaps what step {other} wrote"
                    self.fault(FaultKind.SLOT_REWRITTEN, rank, at, text)
        elif step.dst is Space.OUTPUT and host.gates_passed == 0:
            self.fault(FaultKind.TOO_EARLY, rank, at, "writes to the output")
        accesses.writes.append((begin, end, rank, at))
        for part_begin, part_end, content in parts:
            memory.write(part_begin, part_end, content)

    def is_same_memory(self, rank: int, at: int, step: Step) -> bool:
        """Whether a step's own source and destination lie in one array."""
        if Space.SLOT in (step.src, step.dst):
            return False
        src = self.memory(rank, at, step.src, step.src_block, rank, write=False)
        dst = self.memory(rank, at, step.dst, step.dst_block, rank, write=True)
        return src is not None and src is dst

    def find_overlap(self, rank: int, at: int, step: Step) -> None:
        """A step inside one memory must not read what it writes, unless the places are equal."""
        distance = abs(step.src_offset - step.dst_offset)
        if 0 < distance < step.nbytes and self.is_same_memory(rank, at, step):
            self.fault(FaultKind.OVERLAP, rank, at, "the places share bytes but are not equal")

    def fold(self, rank: int, at: int, step: Step, owners: Sequence[int], *, divides: bool) -> None:
        self.check_elements(rank, at, step)
        sources = [self.source(rank, at, step, owner) for owner in owners]
        if all(sources):
            distance = step.dst_offset - step.src_offset
            parts = [
                (b + distance, e + distance, moved(c, distance))
                for b, e, c in self.combine(sources, divides=divides)
            ]
            self.store(rank, at, step, parts)

    def fold_own(self, rank: int, at: int, step: Step) -> None:
        """dst op src, src op dst, or dst divided: all of it this rank's own."""
        self.check_elements(rank, at, step)
        distance = step.dst_offset - step.src_offset
        there = (step.dst, step.dst_block, step.dst_offset)
        dst = self.read(rank, at, step, there, rank)
        if step.kind is StepKind.DIVIDE:
            self.store(rank, at, step, [(b, e, divided(c)) for b, e, c in dst])
            return
        src = [
            (b + distance, e + distance, moved(c, distance))
            for b, e, c in self.source(rank, at, step, rank)
        ]
        if src and dst:
            operands = [dst, src] if step.kind is StepKind.FOLD_AFTER else [src, dst]
            self.store(rank, at, step, self.combine(operands, divides=False))

    def check_elements(self, rank: int, at: int, step: Step) -> None:
        self.find_overlap(rank, at, step)
        itemsize = self.problems[rank].itemsize
        if any(x % itemsize for x in (step.src_offset, step.dst_offset, step.nbytes)):
            self.fault(FaultKind.PART_OF_ELEMENT, rank, at, f"elements have {itemsize} bytes")

    def combine(self, sources: list[list[Interval]], *, divides: bool) -> list[Interval]:
        """Fold intervals that cover the same range, operand by operand."""
        parts: list[Interval] = []
        positions = [0] * len(sources)
        begin, end = sources[0][0][0], sources[0][-1][1]
        while begin < end:
            here = [source[i] for source, i in zip(sources, positions, strict=True)]
            until = min(part[1] for part in here)
            # Relative to the first shift, so that folds at different places share an entry.
            first = here[0][2]
            origin = 0 if first is None else first[1]
            key = divides, tuple([moved(part[2], origin) for part in here])
            content = self.fold_cache.get(key)
            if content is None:
                content = self.fold_cache[key] = folded(list(key[1]), divides=divides)
            parts.append((begin, until, moved(content, -origin)))
            positions = [i + (part[1] == until) for i, part in zip(positions, here, strict=True)]
            begin = until
        return parts

    def exchange(self, rank: int, at: int) -> None:
        for peer in self.host_of[rank].ranks:
            sizes = self.problems[rank].out_nbytes, self.problems[peer].in_nbytes
            nbytes = sizes[0][peer]
            if nbytes != sizes[1][rank]:
                text = f"expects {nbytes} bytes from rank {peer}, which sends {sizes[1][rank]}"
                self.fault(FaultKind.OUT_OF_BOUNDS, rank, at, text)
                continue
            if peer != rank and self.host_of[rank].gates_passed == 0:
                text = "reads a peer's sizes, which are not published yet"
                self.fault(FaultKind.TOO_EARLY, rank, at, text)
            if nbytes:
                part = Step(
                    StepKind.EXCHANGE, peer, Space.INPUT, rank, 0, Space.OUTPUT, peer, 0, nbytes
                )
                self.store(rank, at, part, self.source(rank, at, part, peer))

    # ------------------------------------------------------------------------------ messages

    def send(self, rank: int, at: int, step: Step) -> None:
        if not self.may_exchange(rank, at, step):
            return
        begin, end = step.src_offset, step.src_offset + step.nbytes
        parts = self.source(rank, at, step, rank)
        memory = self.memory(rank, at, step.src, step.src_block, rank, write=False)
        if memory is not None and step.nbytes:
            self.sent[rank].add(memory, begin, end, at)
        parts = [(b - begin, e - begin, moved(c, -begin)) for b, e, c in parts]
        passed = self.host_of[rank].gates_passed
        self.messages.setdefault((rank, step.peer), deque()).append((parts, step.nbytes, passed))

    def has_message(self, rank: int, step: Step) -> bool:
        """Whether a RECV need not wait."""
        return bool(self.messages.get((step.peer, rank)))

    def receive(self, rank: int, at: int, step: Step) -> None:
        if not self.may_exchange(rank, at, step):
            return
        parts, nbytes, _ = self.messages[step.peer, rank].popleft()
        if nbytes != step.nbytes:
            text = f"expects {step.nbytes} bytes from rank {step.peer}, which sends {nbytes}"
            self.fault(FaultKind.WRONG_SIZE, rank, at, text)
        elif nbytes:
            to = step.dst_offset
            self.store(rank, at, step, [(b + to, e + to, moved(c, to)) for b, e, c in parts])

    def may_exchange(self, rank: int, at: int, step: Step) -> bool:
        """Whether there can be a message at all."""
        if not 0 <= step.peer < self.size:
            self.fault(FaultKind.OUT_OF_BOUNDS, rank, at, f"there is no rank {step.peer}")
            return False
        if self.host_of[step.peer] is self.host_of[rank]:
            text = f"rank {step.peer} is on the same host"
            self.fault(FaultKind.SAME_HOST, rank, at, text)
            return False
        host = self.host_of[rank]
        # A rank that is alone on its host may send: nothing of it is taken before the calls are compared.
        if host.gates_passed == 0 and (step.kind is StepKind.RECV or len(host.ranks) > 1):
            text = "exchanges messages before the calls are compared"
            self.fault(FaultKind.TOO_EARLY, rank, at, text)
        return True
