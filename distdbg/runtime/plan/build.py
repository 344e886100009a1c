"""The list of steps of one rank while it is made: short verbs, empty moves are left out."""

from __future__ import annotations

from distdbg.runtime.plan.steps import Plan, Space, Step, StepKind

GATE = Step(StepKind.GATE)

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


class Steps:
    """Collects the steps of one rank and how much of the slot they use."""

    __slots__ = ("slot_nbytes", "steps")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.slot_nbytes = 0

    def gate(self) -> None:
        """Wait for all ranks."""
        self.steps.append(GATE)

    def exchange(self, nbytes: int) -> None:
        """Fetch block `rank` of every rank, `nbytes` in all."""
        self.steps.append(Step(StepKind.EXCHANGE, nbytes=nbytes))

    def copy(self, src: Place, dst: Place, nbytes: int) -> None:
        """Copy within the rank."""
        self._move(StepKind.COPY, -1, src, dst, nbytes)

    def pull(self, peer: int, src: Place, dst: Place, nbytes: int) -> None:
        """Copy from a peer."""
        self._move(StepKind.PULL, peer, src, dst, nbytes)

    def fold(self, src: Place, dst: Place, nbytes: int) -> None:
        """Fold the same place of all ranks."""
        self._move(StepKind.FOLD_ALL, -1, src, dst, nbytes)

    def _move(self, kind: StepKind, peer: int, src: Place, dst: Place, nbytes: int) -> None:
        if nbytes <= 0:
            return
        self.steps.append(Step(kind, peer, *src, *dst, nbytes))
        if dst[0] is Space.SLOT:
            self.slot_nbytes = max(self.slot_nbytes, dst[2] + nbytes)

    def plan(self, algorithm: str) -> Plan:
        """The finished plan."""
        return Plan(algorithm=algorithm, steps=tuple(self.steps), slot_nbytes=self.slot_nbytes)


def peers_after(rank: int, size: int) -> list[int]:
    """All peers, beginning with the next one, so that not all ranks read from rank 0 first."""
    return [*range(rank + 1, size), *range(rank)]
