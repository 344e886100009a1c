"""What is measured: kinds, sizes, and what the size of a kind means; pure.

The size follows nccl-tests and is the same for every library: for all_reduce, broadcast and
send_recv the bytes of the one buffer; for all_gather, reduce_scatter and all_to_all the bytes of
the larger (total) buffer of one rank, at least one float32 for each rank. barrier has no size.
"""

from __future__ import annotations

from dataclasses import dataclass

ITEM_NBYTES = 4
"""Everything is measured on float32."""

KINDS = (
    "all_reduce",
    "all_gather",
    "broadcast",
    "reduce_scatter",
    "all_to_all",
    "barrier",
    "send_recv",
)

SPLIT_KINDS = frozenset({"all_gather", "reduce_scatter", "all_to_all"})
"""Kinds whose size is that of a buffer with one block for each rank."""

DEFAULT_SIZES = (8, 4 << 10, 64 << 10, 1 << 20, 64 << 20)


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One line of the table."""

    kind: str
    nbytes: int
    """0 for a barrier."""

    def count(self, world_size: int) -> int:
        """Elements of the buffer that the size names, rounded to whole blocks."""
        if self.kind == "barrier":
            return 0
        if self.kind in SPLIT_KINDS:
            return world_size * max(1, self.nbytes // ITEM_NBYTES // world_size)
        return max(1, self.nbytes // ITEM_NBYTES)


def make_cases(kinds: tuple[str, ...], sizes: tuple[int, ...]) -> list[Case]:
    """Every kind at every size, barrier once."""
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"unknown kind {unknown[0]!r}; the kinds are {', '.join(KINDS)}")
    cases = []
    for kind in kinds:
        cases += [Case(kind, nbytes) for nbytes in ((0,) if kind == "barrier" else sizes)]
    return cases


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Read '8', '64K', '64KiB' or '1 MiB' as bytes."""
    bare = text.strip().upper().removesuffix("B").removesuffix("I").strip()
    unit = bare[-1] if bare and bare[-1] in _UNITS else ""
    digits = bare.removesuffix(unit).strip()
    if not digits.isdecimal() or int(digits) == 0:
        raise ValueError(f"not a size: {text!r}; write 8, 64K or 1MiB")
    return int(digits) * _UNITS[unit]


def format_size(nbytes: int) -> str:
    """Write bytes as '8 B', '64 KiB', '1 MiB'."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor and nbytes % factor == 0:
            return f"{nbytes // factor} {unit}"
    return f"{nbytes} B"


def format_seconds(seconds: float) -> str:
    """Write a time with three digits and the unit that fits: '1.23 us'."""
    for unit, factor in (("us", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * factor:
            value = seconds / factor
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{seconds:.2f} s"
