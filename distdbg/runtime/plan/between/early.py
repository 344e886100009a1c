"""What leaves before calls are compared: the first messages of a plan go with its first gate.

That saves a round, as mirrored slots do, but what goes to one rank goes to no other, and is copied nowhere.
What a rank has sent to others that turn out to be in another op is thrown away there: a receiver takes
nothing to its place before it has compared. Only where each host has one rank, which stands at the gate for
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdbg.runtime.plan.steps import Plan, Space, Step, StepKind

#: Of all messages from one rank to another. What cannot leave at once is copied, since the arrays are the
#: program's again when calls differ.
MOST_EARLY_NBYTES = 256 << 10
#: Of all messages of a rank.
MOST_EARLY_NBYTES_OF_RANK = 4 << 20


def send_early(plan: Plan) -> Plan:
    """The same, with those SENDs before its only gate that depend on nothing that is received."""
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
            and nbytes <= MOST_EARLY_NBYTES
            and total <= MOST_EARLY_NBYTES_OF_RANK
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
