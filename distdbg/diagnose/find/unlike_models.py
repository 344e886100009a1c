"""Models that torch's DDP refuses, as their numbers of parameters differ: whose differs from most. Pure.

rank 1: Rank 1 has 6 params, while rank 2 has inconsistent 4 params.
rank 2: Rank 2 has 4 params, while rank 0 has inconsistent 6 params.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.wording import say_ranks, verb

_TOLD: Final = re.compile(r"Rank (\d+) has (\d+) params, while rank (\d+) has inconsistent (\d+)")


class UnlikeModels(NamedTuple):
    """The words of a finding about models that differ."""

    odd: tuple[int, ...]
    others: tuple[int, ...]
    what: str
    advice: Advice


def find_unlike_models(reasons: Mapping[int, str]) -> UnlikeModels | None:
    """From why ranks failed; None where none says so, or as many ranks have the one model as the other."""
    counts: dict[int, int] = {}
    for reason in reasons.values():
        if told := _TOLD.search(reason):
            rank, count, other, others_count = map(int, told.groups())
            counts |= {rank: count, other: others_count}
    usual = Counter(counts.values()).most_common(2)
    if len(usual) < 2 or usual[0][1] == usual[1][1]:
        return None
    odd = tuple(sorted(rank for rank, count in counts.items() if count != usual[0][0]))
    others = tuple(sorted(counts.keys() - set(odd)))
    differ = ", ".join(
        f"{say_ranks(ranks)} {verb(ranks, 'has', 'have')} {count}"
        for count in sorted({counts[rank] for rank in odd})
        for ranks in [[rank for rank in odd if counts[rank] == count]]
    )
    what = (
        f"the models for DDP differ: {differ} parameters that require grad, "
        f"{say_ranks(others)} {verb(others, 'has', 'have')} {usual[0][0]}"
    )
    advice = Advice(
        f"see what makes the model of {say_ranks(odd)} another one: requires_grad, or its settings",
        Trait.MODELS_DIFFER,
    )
    return UnlikeModels(odd, others, what, advice)
