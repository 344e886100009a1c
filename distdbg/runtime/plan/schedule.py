"""A plan with everything left out but when and with whom: small enough to keep for 65,536 ranks.

What a rank does alone is one number of seconds before the next message or gate.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from distdbg.runtime.plan.link import NetworkLink
from distdbg.runtime.plan.steps import Plan, Step, StepKind

_WAITS = frozenset({StepKind.GATE, StepKind.HOST_GATE, StepKind.SEND, StepKind.RECV})


class Schedule:
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
                work_s += work_of_s(step, size, here, link)
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


def work_of_s(step: Step, size: int, here: int, link: NetworkLink) -> float:
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
