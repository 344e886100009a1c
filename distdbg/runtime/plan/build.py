"""The list of steps of one rank while it is made: short verbs, empty moves are left out."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.runtime.plan.gloo_order import GlooOrder
from distdbg.runtime.plan.steps import Plan, Space, Step, StepKind

GATE = Step(StepKind.GATE)
HOST_GATE = Step(StepKind.HOST_GATE)

#: What areas of scratch memory begin at.
_SCRATCH_ALIGN = 64

#: A place: space, block, offset.
Place = tuple[Space, int, int]


def at_input(offset: int = 0, block: int = 0) -> Place:
    """A place in the input."""
    return Space.INPUT, block, offset


def at_output(offset: int = 0, block: int = 0) -> Place:
    """A place in the output."""
    return Space.OUTPUT, block, offset


def at_slot(offset: int = 0) -> Place:
    """A place in the half of the slot that the neighbouring gate selects."""
    return Space.SLOT, 0, offset


def at_scratch(offset: int = 0) -> Place:
    """A place in scratch memory."""
    return Space.SCRATCH, 0, offset


class StepBuilder:
    """Collects the steps of one rank and how much of the slot they use."""

    __slots__ = ("scratch_nbytes", "slot_nbytes", "steps")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.slot_nbytes = 0
        self.scratch_nbytes = 0

    def gate(self) -> None:
        """Wait for all ranks."""
        self.steps.append(GATE)

    def host_gate(self) -> None:
        """Wait for the ranks of this host."""
        self.steps.append(HOST_GATE)

    def exchange(self, nbytes: int) -> None:
        """Fetch block `rank` of every rank, `nbytes` in all."""
        self.steps.append(Step(StepKind.EXCHANGE, nbytes=nbytes))

    def copy(self, src: Place, dst: Place, nbytes: int) -> None:
        """Copy within the rank."""
        self._move(StepKind.COPY, -1, src, dst, nbytes)

    def pull(self, peer: int, src: Place, dst: Place, nbytes: int) -> None:
        """Copy from a peer."""
        self._move(StepKind.PULL, peer, src, dst, nbytes)

    def fold(
        self,
        src: Place,
        dst: Place,
        nbytes: int,
        order: GlooOrder | None = None,
        block: int = 0,
        offset: int = 0,
    ) -> None:
        """Fold the same place of all ranks; with an order, which goes by where in its block it lies."""
        if order is None:
            self._move(StepKind.FOLD_ALL, -1, src, dst, nbytes)
            return
        for begin, length, first in order.runs(block, offset, nbytes):
            by = begin - offset
            self._move(StepKind.FOLD_ALL, -1, shifted(src, by), shifted(dst, by), length, first)

    def fold_to(self, peer: int, begin: int, nbytes: int, order: GlooOrder | None = None) -> None:
        """Fold a place in the input of all ranks into that of a peer's output, or of everyone's (-1)."""
        runs = [(begin, nbytes, -1)] if order is None else order.runs(0, begin, nbytes)
        for offset, length, first in runs:
            self._move(StepKind.FOLD_TO, peer, at_input(offset), at_output(offset), length, first)

    def push(self, peer: int, src: Place, dst: Place, nbytes: int) -> None:
        """Copy to a peer."""
        self._move(StepKind.PUSH, peer, src, dst, nbytes)

    def spread(self, source: int, src: Place, dst: Place, nbytes: int) -> None:
        """Copy from a rank, which may be this one, to every rank."""
        self._move(StepKind.SPREAD, source, src, dst, nbytes)

    def fold_host(self, src: Place, dst: Place, nbytes: int) -> None:
        """Fold the same place of the ranks of this host."""
        self._move(StepKind.FOLD_HOST, -1, src, dst, nbytes)

    def send(self, peer: int, src: Place, nbytes: int) -> None:
        """Begin to send to a rank of another host."""
        if nbytes > 0:
            self.message(StepKind.SEND, peer, src, nbytes)

    def recv(self, peer: int, dst: Place, nbytes: int) -> None:
        """Wait for the next message of a rank of another host."""
        if nbytes > 0:
            self.message(StepKind.RECV, peer, dst, nbytes)

    def message(self, kind: StepKind, peer: int, place: Place, nbytes: int) -> None:
        """A SEND or a RECV, also of nothing: where sizes have to be compared."""
        if kind is StepKind.SEND:
            self.steps.append(Step(kind, peer, *place, nbytes=nbytes))
        else:
            self.steps.append(Step(kind, peer, Space.INPUT, 0, 0, *place, nbytes))

    def fold_after(self, dst: Place, src: Place, nbytes: int) -> None:
        """Make dst what dst op src is."""
        self._move(StepKind.FOLD_AFTER, -1, src, dst, nbytes)

    def fold_before(self, dst: Place, src: Place, nbytes: int) -> None:
        """Make dst what src op dst is."""
        self._move(StepKind.FOLD_BEFORE, -1, src, dst, nbytes)

    def divide(self, place: Place, nbytes: int) -> None:
        """Divide by the number of ranks, for AVG."""
        self._move(StepKind.DIVIDE, -1, place, place, nbytes)

    def scratch(self, nbytes: int) -> int:
        """Set an area of scratch memory aside; return where it begins."""
        begin = self.scratch_nbytes
        self.scratch_nbytes += -(-nbytes // _SCRATCH_ALIGN) * _SCRATCH_ALIGN
        return begin

    def _move(
        self, kind: StepKind, peer: int, src: Place, dst: Place, nbytes: int, first: int = -1
    ) -> None:
        if nbytes <= 0:
            return
        self.steps.append(Step(kind, peer, *src, *dst, nbytes, first))
        if dst[0] is Space.SLOT:
            self.slot_nbytes = max(self.slot_nbytes, dst[2] + nbytes)

    def plan(self, algorithm: str, exposes: Iterable[Space] = ()) -> Plan:
        """The finished plan."""
        return Plan(
            algorithm=algorithm,
            steps=tuple(self.steps),
            slot_nbytes=self.slot_nbytes,
            scratch_nbytes=self.scratch_nbytes,
            exposes=frozenset(exposes),
        )


def shifted(place: Place, by: int) -> Place:
    """The place `by` bytes behind."""
    return place[0], place[1], place[2] + by


def peers_after(rank: int, size: int) -> list[int]:
    """All peers, beginning with the next one, so that not all ranks read from rank 0 first."""
    return [*range(rank + 1, size), *range(rank)]
