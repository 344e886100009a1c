"""Proves plans right without a process: runs the plans of all ranks on symbolic bytes.

Pure, and quick enough for 64 ranks and any size, because ranges are kept as intervals. Between two
gates the ranks' steps may happen in any order; so every two accesses of different ranks to the same
bytes between the same two gates, one of them a write, are a race, and without races the order in
which the simulation runs the ranks makes no difference to what it finds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from distdbg.runtime.call import Kind
from distdbg.runtime.plan.contents import Content, Memory, Value, folded, moved
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.promise import expected_value, in_place_block
from distdbg.runtime.plan.steps import Plan, Space, Step, StepKind


class FaultKind(StrEnum):
    """What can be wrong with plans."""

    DIFFERENT_ALGORITHMS = "different algorithms"
    DEADLOCK = "deadlock"
    NO_GATE = "no gate"
    WRONG_RESULT = "wrong result"
    RACE = "race"
    SLOT_REWRITTEN = "slot written twice before one gate"
    SLOT_OVERFLOW = "slot overflow"
    TOO_EARLY = "before the first gate"
    TOO_LATE = "after the last gate"
    NOT_RELEASED = "no gate after reading a peer's array"
    NOT_REACHABLE = "a peer's array cannot be read"
    OUT_OF_BOUNDS = "outside of the block"
    OVERLAP = "source and destination overlap"
    PART_OF_ELEMENT = "part of an element"
    READ_ONLY = "input written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong; `step` is -1 when it is the plan as a whole."""

    kind: FaultKind
    rank: int
    step: int = -1
    text: str

    def __str__(self) -> str:
        where = f"rank {self.rank}" if self.step < 0 else f"rank {self.rank} step {self.step}"
        return f"{where}: {self.kind}: {self.text}"


def simulate(
    problems: Sequence[Problem],
    plans: Sequence[Plan],
    topology: Topology,
    *,
    first_gate: int = 0,
    in_place: bool = True,
) -> list[Fault]:
    """Run the plans of all ranks of a group; an empty list means that they are right.

    `first_gate` is the number of the plans' first gate in the group's count. `in_place` says
    whether inputs lie inside outputs, or outputs inside inputs, for kinds where that is allowed.
    """
    faults = _compare_shapes(plans)
    if faults:
        return faults
    run = _Run(problems, plans, topology, first_gate, in_place)
    run.all_segments()
    if not run.faults:
        run.compare_results()
    return run.faults


def _compare_shapes(plans: Sequence[Plan]) -> list[Fault]:
    """Whether all ranks run the same algorithm and meet at the same gates."""
    waits = (StepKind.GATE, StepKind.EXCHANGE)
    shapes = [[step.kind for step in plan.steps if step.kind in waits] for plan in plans]
    faults = []
    for rank, (plan, shape) in enumerate(zip(plans, shapes, strict=True)):
        if plan.algorithm != plans[0].algorithm:
            text = f"{plan.algorithm!r}, but {plans[0].algorithm!r} on rank 0"
            faults.append(Fault(kind=FaultKind.DIFFERENT_ALGORITHMS, rank=rank, text=text))
        if shape != shapes[0]:
            text = f"{len(shape)} gates and exchanges, or another order, than {len(shapes[0])}"
            faults.append(Fault(kind=FaultKind.DEADLOCK, rank=rank, text=f"{text} on rank 0"))
        elif StepKind.GATE not in shape:
            text = "the fingerprints are never compared"
            faults.append(Fault(kind=FaultKind.NO_GATE, rank=rank, text=text))
    return faults


@dataclass(slots=True)
class _Accesses:
    """What happened to one memory between two gates."""

    owner: int
    #: (begin, end, rank, step) of reads by others, and (begin, end, step) of the owner's writes.
    reads: list[tuple[int, int, int, int]]
    writes: list[tuple[int, int, int]]


class _Run:
    """The memories of all ranks while plans run."""

    def __init__(
        self,
        problems: Sequence[Problem],
        plans: Sequence[Plan],
        topology: Topology,
        first_gate: int,
        in_place: bool,
    ) -> None:
        self.problems = problems
        self.plans = plans
        self.topology = topology
        self.next_gate = first_gate
        self.faults: list[Fault] = []
        self.size = len(plans)
        self.inputs: list[list[Memory]] = []
        self.outputs: list[list[Memory]] = []
        self.slots = [[Memory(topology.slot_nbytes) for _ in (0, 1)] for _ in plans]
        for problem in problems:
            inputs = [
                Memory(nbytes, (Value(((problem.rank, block, 0),), 0), 0))
                for block, nbytes in enumerate(problem.in_nbytes)
            ]
            outputs = [Memory(nbytes) for nbytes in problem.out_nbytes]
            pair = in_place_block(problem) if in_place else None
            # The array that a broadcast sends is also what root ends up with, in place or not.
            if problem.kind is Kind.BROADCAST and problem.rank == problem.root:
                pair = (0, 0)
            if pair is not None:
                outputs[pair[1]] = inputs[pair[0]]
            self.inputs.append(inputs)
            self.outputs.append(outputs)
        self.accesses: dict[int, _Accesses] = {}
        self.cursors = [0] * self.size
        self.gates_left = sum(step.kind is StepKind.GATE for step in plans[0].steps)
        self.gates_passed = 0
        #: The values of folds, so that equal ones are one object and compare at once.
        self.fold_cache: dict[tuple[Content, ...], Content] = {}

    def fault(self, kind: FaultKind, rank: int, step: int, text: str) -> None:
        self.faults.append(Fault(kind=kind, rank=rank, step=step, text=text))

    def all_segments(self) -> None:
        """Run from gate to gate."""
        while True:
            for slots in self.slots:
                slots[self.next_gate & 1].clear()
            for rank in range(self.size):
                self.segment(rank)
            self.find_races()
            if self.gates_left == 0:
                return
            self.gates_left -= 1
            self.gates_passed += 1
            self.next_gate += 1

    def segment(self, rank: int) -> None:
        """Run the steps of one rank up to its next gate."""
        steps = self.plans[rank].steps
        at = self.cursors[rank]
        while at < len(steps) and steps[at].kind is not StepKind.GATE:
            self.step(rank, at, steps[at])
            at += 1
        self.cursors[rank] = at + 1

    def step(self, rank: int, at: int, step: Step) -> None:
        match step.kind:
            case StepKind.COPY | StepKind.PULL:
                owner = rank if step.kind is StepKind.COPY else step.peer
                if not 0 <= owner < self.size:
                    self.fault(FaultKind.OUT_OF_BOUNDS, rank, at, f"there is no rank {owner}")
                    return
                if step.kind is StepKind.COPY:
                    self.find_overlap(rank, at, step)
                    is_self = step.src_offset == step.dst_offset and step.dst is not Space.INPUT
                    if is_self and self.is_same_memory(rank, at, step):
                        return
                parts = self.source(rank, at, step, owner)
                distance = step.dst_offset - step.src_offset
                self.store(
                    rank,
                    at,
                    step,
                    [(b + distance, e + distance, moved(c, distance)) for b, e, c in parts],
                )
            case StepKind.FOLD_ALL:
                self.fold(rank, at, step)
            case StepKind.EXCHANGE:
                self.exchange(rank, at)
            case StepKind.GATE:
                raise AssertionError("a gate ends the segment")

    def memory(
        self, rank: int, at: int, space: Space, block: int, owner: int, *, write: bool
    ) -> Memory | None:
        match space:
            case Space.INPUT:
                blocks = self.inputs[owner]
            case Space.OUTPUT:
                blocks = self.outputs[owner]
            case Space.SLOT:
                half = self.next_gate if write else self.next_gate - 1
                return self.slots[owner][half & 1]
        if 0 <= block < len(blocks):
            return blocks[block]
        text = f"rank {owner} has no {space.name} block {block}"
        self.fault(FaultKind.OUT_OF_BOUNDS, rank, at, text)
        return None

    def accesses_of(self, memory: Memory, owner: int) -> _Accesses:
        found = self.accesses.get(id(memory))
        if found is None:
            found = self.accesses[id(memory)] = _Accesses(owner, [], [])
        return found

    def source(self, rank: int, at: int, step: Step, owner: int) -> list[tuple[int, int, Content]]:
        """Read a step's source on `owner`; what is wrong with that is noted."""
        begin, end = step.src_offset, step.src_offset + step.nbytes
        memory = self.memory(rank, at, step.src, step.src_block, owner, write=False)
        if memory is None:
            return []
        if begin < 0 or end > memory.nbytes:
            text = f"reads [{begin}, {end}) of {memory.nbytes} bytes"
            self.fault(FaultKind.OUT_OF_BOUNDS, rank, at, text)
            return []
        if step.src is Space.SLOT and self.gates_passed == 0:
            self.fault(FaultKind.TOO_EARLY, rank, at, "reads a slot that no rank has filled")
        if owner != rank:
            # An exchange finds its own way to the bytes, and ends with the gate that takes.
            if step.kind is not StepKind.EXCHANGE:
                self.note_remote_read(rank, at, step.src)
            self.accesses_of(memory, owner).reads.append((begin, end, rank, at))
        return memory.read(begin, end)

    def note_remote_read(self, rank: int, at: int, space: Space) -> None:
        """Whether an array of a peer may be read now."""
        if space is Space.SLOT:
            return
        if self.gates_passed == 0:
            self.fault(
                FaultKind.TOO_EARLY, rank, at, "reads a peer's array, whose address is unknown"
            )
        if self.gates_left == 0:
            self.fault(
                FaultKind.NOT_RELEASED, rank, at, "the peer may have left and reused its array"
            )
        if not self.topology.single_copy:
            self.fault(FaultKind.NOT_REACHABLE, rank, at, f"reads {space.name} of a peer")

    def store(self, rank: int, at: int, step: Step, parts: list[tuple[int, int, Content]]) -> None:
        """Write to a step's destination; what is wrong with that is noted."""
        if step.dst is Space.INPUT:
            self.fault(FaultKind.READ_ONLY, rank, at, "the input belongs to the user")
            return
        begin, end = step.dst_offset, step.dst_offset + step.nbytes
        memory = self.memory(rank, at, step.dst, step.dst_block, rank, write=True)
        if memory is None:
            return
        limit = memory.nbytes
        if step.dst is Space.SLOT:
            limit = min(limit, self.plans[rank].slot_nbytes)
        if begin < 0 or end > limit:
            kind = FaultKind.SLOT_OVERFLOW if step.dst is Space.SLOT else FaultKind.OUT_OF_BOUNDS
            self.fault(kind, rank, at, f"writes [{begin}, {end}) of {limit} bytes")
            return
        accesses = self.accesses_of(memory, rank)
        if step.dst is Space.SLOT:
            if self.gates_left == 0:
                self.fault(FaultKind.TOO_LATE, rank, at, "fills a slot for the next plan's gate")
            for other_begin, other_end, other in accesses.writes:
                if begin < other_end and other_begin < end:
                    text = f"[{begin}, {end}) overlaps what step {other} wrote"
                    self.fault(FaultKind.SLOT_REWRITTEN, rank, at, text)
        elif self.gates_passed == 0:
            self.fault(FaultKind.TOO_EARLY, rank, at, "writes to the output")
        accesses.writes.append((begin, end, at))
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

    def fold(self, rank: int, at: int, step: Step) -> None:
        self.find_overlap(rank, at, step)
        itemsize = self.problems[rank].itemsize
        if any(x % itemsize for x in (step.src_offset, step.dst_offset, step.nbytes)):
            self.fault(FaultKind.PART_OF_ELEMENT, rank, at, f"elements have {itemsize} bytes")
        sources = [self.source(rank, at, step, owner) for owner in range(self.size)]
        if not all(sources):
            return
        distance = step.dst_offset - step.src_offset
        parts: list[tuple[int, int, Content]] = []
        positions = [0] * self.size
        begin, end = step.src_offset, step.src_offset + step.nbytes
        while begin < end:
            here = [source[i] for source, i in zip(sources, positions, strict=True)]
            until = min(part[1] for part in here)
            # Relative to the first shift, so that folds at different places share an entry.
            first = here[0][2]
            origin = 0 if first is None else first[1]
            key = tuple([moved(part[2], origin) for part in here])
            content = self.fold_cache.get(key)
            if content is None:
                content = self.fold_cache[key] = folded(list(key))
            parts.append((begin + distance, until + distance, moved(content, distance - origin)))
            positions = [i + (part[1] == until) for i, part in zip(positions, here, strict=True)]
            begin = until
        self.store(rank, at, step, parts)

    def exchange(self, rank: int, at: int) -> None:
        for peer in range(self.size):
            sizes = self.problems[rank].out_nbytes, self.problems[peer].in_nbytes
            nbytes = sizes[0][peer]
            if nbytes != sizes[1][rank]:
                text = f"expects {nbytes} bytes from rank {peer}, which sends {sizes[1][rank]}"
                self.fault(FaultKind.OUT_OF_BOUNDS, rank, at, text)
                continue
            if peer != rank and self.gates_passed == 0:
                text = "reads a peer's sizes, which are not published yet"
                self.fault(FaultKind.TOO_EARLY, rank, at, text)
            if nbytes:
                part = Step(
                    StepKind.EXCHANGE, peer, Space.INPUT, rank, 0, Space.OUTPUT, peer, 0, nbytes
                )
                self.store(rank, at, part, self.source(rank, at, part, peer))

    def find_races(self) -> None:
        """Compare what was read by others with what was written since the last gate."""
        for accesses in self.accesses.values():
            if not accesses.reads or not accesses.writes:
                continue
            writes = sorted(accesses.writes)
            longest = max(end - begin for begin, end, _ in writes)
            for begin, end, rank, at in accesses.reads:
                i = bisect_left(writes, (begin - longest, 0, 0))
                while i < len(writes) and writes[i][0] < end:
                    if writes[i][1] > begin:
                        text = f"reads [{begin}, {end}) while rank {accesses.owner}"
                        text += f" writes [{writes[i][0]}, {writes[i][1]}) in step {writes[i][2]}"
                        self.fault(FaultKind.RACE, rank, at, text)
                        break
                    i += 1
        self.accesses.clear()

    def compare_results(self) -> None:
        """Whether every output block holds what its kind promises."""
        for problem, outputs in zip(self.problems, self.outputs, strict=True):
            for block, memory in enumerate(outputs):
                if memory.nbytes == 0:
                    continue
                wanted = (expected_value(problem, block), 0)
                for begin, end, content in memory.read(0, memory.nbytes):
                    if content != wanted:
                        found = (
                            "nothing"
                            if content is None
                            else f"{content[0]} from {begin + content[1]}"
                        )
                        text = (
                            f"output block {block} [{begin}, {end}) holds {found}, not {wanted[0]}"
                        )
                        self.fault(FaultKind.WRONG_RESULT, problem.rank, -1, text)
