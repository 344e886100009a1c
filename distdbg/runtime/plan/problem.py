"""What a plan is made from: the facts of one call on one rank, and the facts of its group.

Both are plain values. Every decision a maker takes depends only on facts that are equal on all
ranks of a legal call, so that ranks which never talk to each other choose the same algorithm:
the whole `Topology`, and of a `Problem` its kind, size, root, itemsize and order, plus

    broadcast, scatter, reduce_scatter's output    the size of a block, where all blocks are equal
    all_reduce, reduce, gather                     in_nbytes[0]
    all_gather                                     all of out_nbytes (blocks may differ)
    reduce_scatter                                 all of in_nbytes (blocks may differ)
    all_to_all                                     nothing: the sizes may differ freely
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distdbg.ops.call import Kind
from distdbg.runtime.plan.gloo_order import GlooOrder
from distdbg.runtime.plan.layout import HostLayout
from distdbg.runtime.plan.link import NetworkLink
from distdbg.runtime.plan.overrides import Override
from distdbg.runtime.tuning.profile import Ways

#: Two elements of the largest dtype, and one cache line: no slot can be smaller.
MIN_SLOT_NBYTES = 64

#: The default of Topology.in_place_nbytes, and what it is where ranks share cores: there a gate more is a
#: change of process more.
IN_PLACE_NBYTES = 64 << 10
IN_PLACE_SHARED_CORES_NBYTES = 512 << 10

#: The default of Topology.slots_nbytes.
SLOTS_NBYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What one rank wants. Blocks are the rank's own; a flat array arrives already cut."""

    kind: Kind
    rank: int
    size: int
    #: A group rank; -1 for kinds without one.
    root: int = -1
    itemsize: int = 1
    in_nbytes: tuple[int, ...] = ()
    out_nbytes: tuple[int, ...] = ()
    #: Of a fold on one host: in which order; None: that of the ranks.
    order: GlooOrder | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What a group can do, and the sizes at which one algorithm takes over from another.

    All ranks of a group hold the same values. `ways` says what of that goes otherwise on this machine.
    `split_nbytes` follows from the cost model and was not measured.
    """

    #: Whether ranks may read each other's INPUT and OUTPUT, and write to OUTPUT (process_vm_readv and
    #: process_vm_writev, or one process).
    single_copy: bool
    #: How many bytes one half of a rank's slot holds.
    slot_nbytes: int
    #: all_reduce: every rank folds all slots itself while together they hold at most this.
    fold_flat_nbytes: int = 64 << 10
    #: Data goes through the slots while one rank brings at most this; above, it goes directly.
    slots_nbytes: int = SLOTS_NBYTES
    #: The group ranks of each host, both in ascending order; empty: all are on one host.
    hosts: tuple[tuple[int, ...], ...] = ()
    #: In shared arrays ranks use each other's memory from this size on, of all blocks of a rank; below, one
    #: gate less is quicker. The only value that may differ between ranks.
    in_place_nbytes: int = IN_PLACE_NBYTES
    #: reduce: from this size on all ranks fold a share each, and root only collects.
    split_nbytes: int = 256 << 10
    #: Messages that are folded or passed on are cut into pieces of this size, so that the work of one
    #: overlaps with the way of the next.
    piece_nbytes: int = 512 << 10
    #: What the machine decides, between the sizes that go through the slots anyway and those that never do.
    ways: Ways = field(default_factory=Ways)
    #: What messages between hosts cost, for choosing algorithms.
    link: NetworkLink = field(default_factory=NetworkLink)
    #: What DISTDBG_ALGO says; the first that fits a call decides.
    overrides: tuple[Override, ...] = ()
    #: Derived of `hosts`; made once, since it costs time for every rank.
    layout: HostLayout = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", HostLayout(self.hosts))
        if self.slot_nbytes < MIN_SLOT_NBYTES:
            raise ValueError(
                f"slot_nbytes is {self.slot_nbytes}; a plan needs at least {MIN_SLOT_NBYTES}"
            )


def deciding_nbytes(problem: Problem) -> int:
    """The size that all ranks of a legal call have alike, and choose by."""
    match problem.kind:
        case Kind.BROADCAST | Kind.SCATTER:
            return problem.out_nbytes[0]
        case Kind.ALL_REDUCE | Kind.REDUCE | Kind.GATHER:
            return problem.in_nbytes[0]
        case Kind.ALL_GATHER:
            return max(problem.out_nbytes)
        case Kind.REDUCE_SCATTER:
            return sum(problem.in_nbytes)
        case _:
            return 0


def uniform_problem(
    kind: Kind, rank: int, size: int, nbytes: int, *, root: int = 0, itemsize: int = 1
) -> Problem:
    """What `rank` wants when all blocks have `nbytes`; for drawings, predictions and tests."""
    one, many = (nbytes,), (nbytes,) * size
    is_root = rank == root
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    match kind:
        case Kind.ALL_REDUCE:
            inputs = outputs = one
        case Kind.BROADCAST:
            inputs, outputs = one if is_root else (), one
        case Kind.REDUCE:
            inputs, outputs = one, one if is_root else ()
        case Kind.ALL_GATHER:
            inputs, outputs = one, many
        case Kind.GATHER:
            inputs, outputs = one, many if is_root else ()
        case Kind.SCATTER:
            inputs, outputs = many if is_root else (), one
        case Kind.REDUCE_SCATTER:
            inputs, outputs = many, one
        case Kind.ALL_TO_ALL:
            inputs = outputs = many
        case Kind.BARRIER:
            pass
        case Kind.SEND | Kind.RECV:
            raise ValueError(f"{kind.label} is point to point and has no plan")
    return Problem(
        kind=kind,
        rank=rank,
        size=size,
        root=root,
        itemsize=itemsize,
        in_nbytes=inputs,
        out_nbytes=outputs,
    )
