"""What the ranks did not call alike, in sentences; and who did not call at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from distdbg.record.batches import name_ranks

#: So many calls are told that no two ranks make alike.
_MAX_SIDES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCall:
    op: str
    """'all_reduce #42 on group 'dp''."""
    form: str
    """'float32[4096], sum'; '' where it does not matter."""
    comm: str
    """What the program calls it; ''."""


def say_differences(called: Mapping[int, RankCall], absent: Sequence[int]) -> list[str]:
    """`absent`: ranks that have not called it."""
    said = []
    if absent:
        said.append(f"{name_ranks(absent)} {'has' if len(absent) == 1 else 'have'} not called it")
    ranks = sorted(called)
    for verb, texts in (
        ("call", {rank: called[rank].op for rank in ranks}),
        ("are called with", {rank: called[rank].form for rank in ranks}),
        ("name it", {rank: called[rank].comm for rank in ranks}),
    ):
        sides: dict[str, list[int]] = {}
        for rank, text in texts.items():
            sides.setdefault(text or "nothing", []).append(rank)
        if len(sides) > 1:
            most_first = sorted(sides.items(), key=lambda side: -len(side[1]))[:_MAX_SIDES]
            said.append(", ".join(f"{name_ranks(side)} {verb} {text}" for text, side in most_first))
    return said


def say_unseen(ranks: Sequence[int]) -> str:
    """Ranks that should call it, and of whose records nobody tells."""
    return f"of {name_ranks(ranks)} nothing is known here"


def say_hidden(ranks: Sequence[int], others: Sequence[int], aspects: Sequence[str]) -> str:
    """Two sides whose calls differ in what no text of them shows."""
    return f"{name_ranks(ranks)} and {name_ranks(others)} differ in: {', '.join(aspects)}"
