"""The errors of ranks that make different groups, or wait for each other in different ones. Pure.

Words are what one rank makes, as it says it in the store (runtime/groups/membership.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distdbg.check.explain import name_ranks
from distdbg.errors import MismatchError, format_ranks
from distdbg.ops.sites import shorten

_MAX_SIDES = 4

Words = Mapping[str, Any]


def explain_groups(all_words: Sequence[Words], this_rank: int) -> MismatchError:
    """Ranks make different groups as their n-th."""
    sides: dict[tuple[int, ...], list[Words]] = {}
    for words in sorted(all_words, key=lambda words: words["rank"]):
        sides.setdefault(tuple(words["ranks"]), []).append(words)
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[1][0]["rank"]))
    odd: list[int] = []
    if len(ordered) > 1 and len(ordered[0][1]) > len(ordered[1][1]):
        odd = sorted(words["rank"] for _, side in ordered[1:] for words in side)
    name = all_words[0]["name"]
    what = f"{all_words[0]['function']} #{name}"
    texts = [
        f"{show_group(ranks)} on {name_ranks([words['rank'] for words in side])}"
        for ranks, side in ordered[:_MAX_SIDES]
    ]
    if len(ordered) > _MAX_SIDES:
        texts.append(f"and {len(ordered) - _MAX_SIDES} other groups")
    details = lines_of([words for _, side in ordered for words in side])
    details.append("the group was not made on these ranks; other groups are unaffected")
    if this_rank in odd:
        details.append(
            "this rank is the one that differs" if len(odd) == 1 else "this rank differs"
        )
    return MismatchError(
        f"{what} differs between ranks: {', '.join(texts)}",
        kind="new_group",
        seq=int(name) if name.isdigit() else -1,
        group=name,
        ranks=odd or sorted(words["rank"] for words in all_words),
        sides=[
            {
                "ranks": [words["rank"] for words in side],
                "what": show_group(ranks),
                "facts": {"kind": "new_group", "ranks": list(ranks)},
                "sites": [
                    {"function": w["function"], "call_site": w["site"], "ranks": [w["rank"]]}
                    for w in side
                ],
                "previous": [],
            }
            for ranks, side in ordered
        ],
        details=details,
        hint="every rank must make the same groups in the same order, including groups it is not in",
    )


def explain_cycle(cycle: Sequence[Words]) -> MismatchError:
    """Ranks wait for each other, each in a group of its own."""
    ordered = sorted(cycle, key=lambda words: words["rank"])
    ranks = [words["rank"] for words in ordered]
    texts = [f"rank {words['rank']} makes {show_group(words['ranks'])}" for words in ordered[:4]]
    return MismatchError(
        f"{ordered[0]['function']}: {name_ranks(ranks)} are deadlocked, each in another group: "
        f"{', '.join(texts)}",
        kind="new_group",
        ranks=ranks,
        details=[*lines_of(ordered), "the groups were not made; other groups are unaffected"],
        hint="ranks that share groups must make them in the same order",
    )


def show_group(ranks: Sequence[int]) -> str:
    """'group 0-3'; ranks in another order than theirs one by one."""
    if list(ranks) == sorted(ranks):
        return f"group {format_ranks(ranks)}"
    more = ",..." if len(ranks) > 8 else ""
    return f"group {','.join(map(str, ranks[:8]))}{more} in this order"


def lines_of(all_words: Sequence[Words]) -> list[str]:
    """A line for each call, with the ranks that made it."""
    short = shorten({words["site"] for words in all_words})
    at: dict[str, list[int]] = {}
    for words in all_words:
        text = (
            f"called {words['function']} for {show_group(words['ranks'])} at {short[words['site']]}"
        )
        at.setdefault(text, []).append(words["rank"])
    lines = [f"{name_ranks(sorted(ranks))} {text}" for text, ranks in list(at.items())[:8]]
    return lines if len(at) <= 8 else [*lines, f"and {len(at) - 8} more lines"]
