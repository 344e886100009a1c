"""Profile: what of a machine decides how bytes move between the ranks of a host, as plain values.

The default holds numbers measured on two cores of an AMD EPYC with one L3; distdbg/runtime/tuning measures
those of other machines. No result depends on them: every way folds all ranks in their order, element by
element. All ranks of a group must have the same `Ways`, for their plans to match.

    slots   through the slots, a slot full a round: a second copy, in a cache that both have
    half    the same in rounds of half a slot of 512 KiB: one rank fills while another takes, and less cache
            is used; but there are more gates. Groups with smaller slots have the shorter rounds anyway
    direct  from where it lies to where it goes: one copy, and a system call that finds the other process's
            pages. Ranks read what they fold and what one of them has for all, who writes a share of that
            itself, and write what each has for the others

Where ranks cannot reach each other (`Topology.single_copy`), everything goes through the slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdbg.ops.call import (
        Kind,  # with NumPy, which a launcher that looks at a profile need not load
    )

#: The least of each class of sizes: see `size_class`. What is below the first goes through the slots.
CLASSES = (32 << 10, 192 << 10, 1536 << 10, 8 << 20)
#: How long rounds are, where a slot has room for longer ones.
HALF_NBYTES = 256 << 10
#: No size: what depends on it never happens.
NEVER = 1 << 62


class TransportKind(StrEnum):
    """How data gets from one rank to another."""

    SLOTS = "slots"
    HALF = "half"
    DIRECT = "direct"


#: Kinds with ways of their own, by their labels; the others go like the one that moves bytes as they do.
KINDS = ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "all_to_all")
_LIKE = {"reduce": "all_reduce", "gather": "all_gather", "scatter": "broadcast"}
_SLOTS = (TransportKind.SLOTS,) * len(CLASSES)


def size_class(nbytes: int) -> int:
    """The class of a size; -1 for less than the first."""
    return sum(nbytes >= least for least in CLASSES) - 1


@dataclass(frozen=True, slots=True)
class Ways:
    """The fastest ways by kind, in the order of KINDS, and class of size."""

    rows: tuple[tuple[TransportKind, ...], ...] = (_SLOTS,) * len(KINDS)

    def way(self, kind: Kind, nbytes: int) -> TransportKind:
        """How a call goes in which one rank brings `nbytes` (see problem.py)."""
        row, at = _LIKE.get(kind.label, kind.label), size_class(nbytes)
        return self.rows[KINDS.index(row)][at] if at >= 0 and row in KINDS else TransportKind.SLOTS

    @property
    def exchanged_nbytes(self) -> int:
        """The longest block of an all_to_all that goes through the slots; 0: as its rounds decide.

        Its ranks learn the sizes only in the op, and the longest block decides for all: so what is direct is
        so for all that is longer.
        """
        row = self.rows[KINDS.index("all_to_all")]
        at = len(row)
        while at > 0 and row[at - 1] is TransportKind.DIRECT:
            at -= 1
        return CLASSES[at] - 1 if at < len(row) else 0

    def with_way(self, kind: Kind, at: int, way: TransportKind) -> Ways:
        """The same with another way for one kind and class."""
        rows = [list(row) for row in self.rows]
        rows[KINDS.index(kind.label)][at] = way
        return Ways(tuple(map(tuple, rows)))

    def of_whole_slots(self) -> Ways:
        """The same, but that a round is always a slot full."""
        kept = (TransportKind.SLOTS, TransportKind.DIRECT)
        return Ways(
            tuple(tuple(w if w in kept else TransportKind.SLOTS for w in row) for row in self.rows)
        )

    @classmethod
    def all(cls, way: TransportKind) -> Ways:
        """The same way for everything."""
        return cls(((way,) * len(CLASSES),) * len(KINDS))

    def to_plain(self) -> dict[str, list[str]]:
        """For JSON."""
        return {
            kind: [way.value for way in row] for kind, row in zip(KINDS, self.rows, strict=True)
        }

    @classmethod
    def from_plain(cls, plain: object) -> Ways:
        """From JSON; ValueError for anything else."""
        if not isinstance(plain, Mapping) or set(plain) != set(KINDS):
            raise ValueError("the kinds are not those that have ways")
        rows = tuple(tuple(TransportKind(way) for way in plain[kind]) for kind in KINDS)
        if any(len(row) != len(CLASSES) for row in rows):
            raise ValueError(f"a kind has not {len(CLASSES)} ways")
        return cls(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """All that is measured of a machine."""

    #: In groups of two ranks; and of more.
    pairs: Ways = field(default_factory=Ways)
    crowds: Ways = field(default_factory=Ways)
    #: Outputs from this size on are written around the cache.
    stream_nbytes: int = 8 << 20
    #: What the pieces of all peers take together while they are folded from where they lie.
    tile_nbytes: int = 512 << 10
    #: Blocking messages up to this are pushed by the sender; longer ones the receiver reads.
    pushed_nbytes: int = 256 << 20
    #: How often a rank with a core of its own looks before it yields.
    spins: int = 100
    #: How long ranks that share cores yield before they sleep; 0: not at all.
    yield_ns: int = 200_000

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least, most = _LIMITS.get(each.name, (0, 0))
            if most and (type(value) is not int or not least <= value <= most):
                raise ValueError(f"{each.name} is {value!r}, not {least} to {most}")

    def ways(self, size: int) -> Ways:
        """Those of a group with `size` ranks on a host."""
        return self.pairs if size == 2 else self.crowds

    def to_plain(self) -> dict[str, object]:
        """For JSON."""
        plain = asdict(self)
        return plain | {"pairs": self.pairs.to_plain(), "crowds": self.crowds.to_plain()}

    @classmethod
    def from_plain(cls, plain: object) -> Profile:
        """From JSON; ValueError for anything that `to_plain` does not write."""
        if not isinstance(plain, Mapping) or set(plain) != {each.name for each in fields(cls)}:
            raise ValueError("the fields are not those of a profile")
        ways = {name: Ways.from_plain(plain[name]) for name in ("pairs", "crowds")}
        return cls(**{**plain, **ways})


#: From what would be slow, not wrong, and no further: a file may have been written by anybody's program.
_LIMITS = {
    "stream_nbytes": (64 << 10, NEVER),
    "tile_nbytes": (32 << 10, 64 << 20),
    "pushed_nbytes": (0, NEVER),
    "spins": (1, 100_000),
    "yield_ns": (0, 10_000_000),
}
