"""The vocabulary of plans: what one rank does, step by step, to carry out one collective.

A plan is data, made by pure functions (`distdbg.runtime.plan`), checked by simulation for any
number of ranks, and executed by one native interpreter (native/core/plan.cpp).

Ranks of one host also write to each other: where they are read, with PUSH; more in shared arrays
(`in_place.py`), where a plan says which of its spaces they use.

Spaces a step can address
    INPUT   block b of the user's input   (remote: read from the peer's memory)
    OUTPUT  block b of the user's output  (remote: read from the peer's memory)
    SLOT    the rank's slot in shared memory, `slot_nbytes` long, block is always 0
    SCRATCH memory of the rank's own, `scratch_nbytes` long, block is always 0; between hosts only

A group has one or several hosts; ranks of one host share memory, ranks of different hosts exchange
messages. Steps that read from peers mean peers of the same host, but for slots: a GATE hands what it
publishes to all hosts, so that afterwards every rank's slot can be read everywhere.

Steps
    GATE       wait until every rank of the group has reached its gate with the same number.
               The first gate of a plan also publishes the fingerprint and the addresses of the
               blocks, and fails on every rank when the fingerprints differ: nothing may be
               written to OUTPUT before it, so a mismatch leaves no trace. Between hosts `nbytes` of
               this rank's slot, from its beginning, go along; there the rest of a slot cannot be read.
    HOST_GATE  the same among the ranks of this host; nothing is compared, and nothing sent
    COPY       dst = own src; nothing at all when both are the same place (an all_gather whose
               input already lies in its output), because peers may be reading it
    PULL       dst = src of rank `peer`
    FOLD_ALL   dst = src[0] op src[1] op ... op src[n-1] over the ranks in ascending order,
               where src is the same place on every rank (so the result is bitwise the same
               whoever computes it); with AVG, the result is then divided by n. With `first`, over that
               rank, the one before it and so on down the ring: what gloo does (gloo_order.py)
    FOLD_HOST  the same over the ranks of this host; AVG is not divided
    SEND       begin to send src to rank `peer` of another host; src may be written again after the
               next GATE, or when the plan has ended. A rank that is alone on its host may send before
               the first gate: that leaves with the gate, and is received before the next one
    RECV       wait for the next message of rank `peer`, which has just `nbytes`, and put it to dst
    FOLD_AFTER   dst = dst op src, both this rank's own; AVG is not divided
    FOLD_BEFORE  dst = src op dst, the same
    DIVIDE     dst divided by n with AVG, else nothing; src is dst
    FOLD_TO    FOLD_ALL, with dst on rank `peer`, or at the same place on every rank (peer -1); only in
               shared arrays
    PUSH       dst of rank `peer`, in its OUTPUT, = own src
    SPREAD     dst of every rank = src of rank `peer`; nothing where both are the same place; only in shared
               arrays
    EXCHANGE   for every rank p of this host, starting after oneself: OUTPUT block p = INPUT block `rank`
               of p.
               Sizes come from the published tables (uneven all_to_all), and so does the way the
               bytes travel: it brings the gates it needs itself, also the last one. nbytes is
               the sum of the sizes, for predictions only.

What makes a plan right (the simulator checks it)
    - SLOT is double: a write before gate number g goes to the half g & 1, a read after gate g and
      before gate g+1 reads the half g & 1. So a value in a slot lives for exactly one gate.
      Writes by one rank to its slot before one gate must not overlap.
    - Between two gates nobody reads what its owner writes: after a PULL or FOLD_ALL that
      reads a peer's INPUT or OUTPUT, a gate must follow before the plan ends, and the owner may not
      write that place between the same two gates.
    - What one rank writes to a peer's OUTPUT between two gates, no other rank reads or writes between them,
      and a gate follows before the plan ends.
    - All ranks pass the same number of gates, and those of a host the same order of both kinds. Both
      kinds, and those that an EXCHANGE brings, count on in one number, which each host keeps for itself.
    - Messages from one rank to another are received in the order in which they are sent, each with the
      size that it has. What a SEND reads is not written before the next GATE or the end.
    - No plan waits for ever, though a SEND never waits.

Sizes and offsets are bytes; FOLD_ALL ranges are whole elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Space(IntEnum):
    """The memory that a step reads or writes."""

    INPUT = 0
    OUTPUT = 1
    SLOT = 2
    SCRATCH = 3


class StepKind(IntEnum):
    """What a step does."""

    GATE = 0
    COPY = 1
    PULL = 2
    FOLD_ALL = 3
    EXCHANGE = 4
    HOST_GATE = 5
    FOLD_HOST = 6
    SEND = 7
    RECV = 8
    FOLD_AFTER = 9
    FOLD_BEFORE = 10
    DIVIDE = 11
    FOLD_TO = 12
    PUSH = 13
    SPREAD = 14


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one rank."""

    kind: StepKind
    peer: int = -1
    src: Space = Space.INPUT
    src_block: int = 0
    src_offset: int = 0
    dst: Space = Space.OUTPUT
    dst_block: int = 0
    dst_offset: int = 0
    nbytes: int = 0
    #: Of FOLD_ALL and FOLD_TO: the rank whose value begins, and those before it follow; -1: rank 0, then up.
    first: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All steps of one rank for one collective."""

    #: The name of the algorithm, for records, docs and tests ("direct_two_phase").
    algorithm: str
    steps: Sequence[Step]
    #: How many bytes of the slot the plan writes at most per gate.
    slot_nbytes: int = 0
    #: How many bytes of scratch memory it needs.
    scratch_nbytes: int = 0
    #: INPUT and OUTPUT of this rank that peers use where they lie in shared arrays.
    exposes: frozenset[Space] = frozenset()
