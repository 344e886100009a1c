"""Error messages of mismatches, from the ranks' descriptions of their calls.

Pure functions of plain facts. Ranks are the numbers that users know (global ranks), given by
`global_ranks`. The text is the same on every rank, up to the line about "this rank", and bounded, whatever
the ranks called and however many they are.

A description is JSON: `facts` (check/signature.py) and `function`, `sends` and `expects` of an all_to_all;
and what the record knows: `call_site` and `previous`, the op before on this group ('barrier #41 at
/home/me/train.py:80 (step)'), both with whole paths, and `comm`, a name of the user's own.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distdbg.check.short_batch import is_short_batch, other_array_hint, size_hint
from distdbg.check.show import (
    SUMS_HINT,
    TWO_CALLS_HINT,
    called,
    differing_aspects,
    show_block,
    show_contents,
    show_side,
)
from distdbg.errors import MismatchError, format_ranks
from distdbg.ops.call import HAS_JOINED, Variant
from distdbg.ops.sites import UNKNOWN, shorten

_MAX_SIDES = 4
_MAX_SITES = 3
_MAX_PAIRS = 8
_LONGEST_SITE = 120
#: Begins the name of an op of a backward pass, which only ranks run whose tensors require grad.
BACKWARD_OF = "backward of "
INTACT = "no data was exchanged; the group is still usable"


@dataclass(slots=True)
class CallingRanks:
    """The ranks that called one thing."""

    facts: dict[str, Any]
    ranks: list[int] = field(default_factory=list)
    #: By function and call site, then by what came before.
    sites: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    previous: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        """As MismatchError.sides has it."""
        return {
            "ranks": self.ranks,
            "what": self.text,
            "facts": self.facts,
            "sites": [
                {"function": function, "call_site": site, "ranks": ranks}
                for (function, site), ranks in self.sites.items()
            ],
            "previous": [{"op": op, "ranks": ranks} for op, ranks in self.previous.items()],
        }


def describe(
    facts: Mapping[str, Any],
    function: str,
    sends: Sequence[int] | None = None,
    expects: Sequence[int] | None = None,
) -> bytes:
    """This rank's words for calls of one shape, sent to the others when ranks differ.

    JSON without the last brace: native code adds where the call was made (`call_site`), the op before
    it (`previous`) and the name given by record_comm (`comm`). `sends` and `expects` are the elements
    for and from each rank, where they may differ.
    """
    words = {"facts": facts, "function": function, "sends": sends, "expects": expects}
    return json.dumps(words).removesuffix("}").encode()


def explain_mismatch(
    descriptions: Sequence[bytes],
    *,
    group: str,
    seq: int,
    global_ranks: Sequence[int],
    this_rank: int,
) -> MismatchError:
    """Return the error, the same on every rank up to the last line: who called what, and where."""
    calls = [_parse(text) for text in descriptions]
    sides = _sides(calls, global_ranks)
    if len(sides) == 1:  # alike to all but the sizes of an exchange
        return _explain_splits(calls, sides[0], group=group, seq=seq, global_ranks=global_ranks)
    all_facts = [side.facts for side in sides]
    differing = differing_aspects(all_facts)
    for side in sides:
        others = [other.facts for other in sides if other is not side]
        side.text = show_side(side.facts, differing, others)
    texts = [f"{side.text} on {name_ranks(side.ranks)}" for side in sides[:_MAX_SIDES]]
    if len(sides) > _MAX_SIDES:
        rest = sum(len(side.ranks) for side in sides[_MAX_SIDES:])
        texts.append(f"and {len(sides) - _MAX_SIDES} other calls on {rest} ranks")
    odd = _differing_ranks(sides, global_ranks)
    kinds = Counter(call["facts"].get("kind", "?") for call in calls)
    functions = {called(facts) for facts in all_facts}
    what = f"{functions.pop()} #{seq}" if len(functions) == 1 else f"op #{seq}"
    details = _call_lines(sides)
    if "block" in differing:
        details += _block_lines(sides)
    if "kind" in differing or "form" in differing or _are_apart(sides):
        details += _previous_lines(sides)
    if not odd:
        details.append("no side has a majority: the calls do not show which one is wrong")
    details.append(INTACT)
    if this_rank in odd:
        details.append(
            "this rank is the one that differs"
            if len(odd) == 1
            else f"this rank is one of those that differ: {format_ranks(odd)}"
        )
    return MismatchError(
        f"{what} on group '{group}' differs between ranks: {', '.join(texts)}",
        kind=kinds.most_common(1)[0][0],
        seq=seq,
        group=group,
        ranks=odd or list(global_ranks),
        sides=[side.to_json() for side in sides],
        details=details,
        hint=_backward_hint(sides)
        or _join_hint(sides)
        or _hint(differing, odd, are_apart=_are_apart(sides), is_short=_is_short(sides, odd, seq)),
    )


def name_ranks(ranks: Sequence[int]) -> str:
    """'rank 3' or 'ranks 0-2,5'."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def _sides(calls: Sequence[dict[str, Any]], global_ranks: Sequence[int]) -> list[CallingRanks]:
    """List who called what, the largest side first."""
    befores = [_before(call) for call in calls]
    short = shorten({call["call_site"] for call in calls} | {site for _, site in befores})
    sides: dict[str, CallingRanks] = {}
    for rank, call, (op, op_site) in zip(global_ranks, calls, befores, strict=True):
        key = json.dumps(call["facts"], sort_keys=True)
        side = sides.setdefault(key, CallingRanks(call["facts"]))
        side.ranks.append(rank)
        side.sites[call["function"], _bounded(short[call["call_site"]])].append(rank)
        if op:
            side.previous[f"{op} at {_bounded(short[op_site])}" if op_site else op].append(rank)
    return sorted(sides.values(), key=lambda side: (-len(side.ranks), side.ranks))


def _before(call: Mapping[str, Any]) -> tuple[str, str]:
    """The op before a call and its call site, both empty where they are not known."""
    op, _, site = str(call.get("previous") or "").partition(" at ")
    return op, site


def _bounded(site: str) -> str:
    return site if len(site) <= _LONGEST_SITE else "..." + site[3 - _LONGEST_SITE :]


def _differing_ranks(sides: Sequence[CallingRanks], global_ranks: Sequence[int]) -> list[int]:
    """The ranks outside the side of the majority, else of the one that sends to all; none without either.

    A majority that has nothing for what is sent is none.
    """
    source = _source_of(sides, global_ranks)
    is_empty = source is not None and 0 in sides[0].facts.get("shape", ())
    if 2 * len(sides[0].ranks) > sum(len(side.ranks) for side in sides) and not is_empty:
        return sorted(rank for side in sides[1:] for rank in side.ranks)
    if source is None:
        return []
    return sorted(rank for side in sides if source not in side.ranks for rank in side.ranks)


def _source_of(sides: Sequence[CallingRanks], global_ranks: Sequence[int]) -> int | None:
    """Return the rank whose array the others have to fit, in one broadcast; else None."""
    roots = {(side.facts.get("kind"), side.facts.get("root")) for side in sides}
    kind, root = roots.pop()
    if (
        roots
        or kind != "broadcast"
        or not isinstance(root, int)
        or not 0 <= root < len(global_ranks)
    ):
        return None
    return global_ranks[root]


def _call_lines(sides: Sequence[CallingRanks]) -> list[str]:
    places = {place for side in sides for place in side.sites}
    if len(places) == 1:
        function, site = places.pop()
        ranks = sorted(rank for side in sides for rank in side.ranks)
        return [f"{name_ranks(ranks)} called {function} at {site}"]
    lines = []
    for side in sides[:_MAX_SIDES]:
        sites = list(side.sites.items())
        for (function, site), ranks in sites[:_MAX_SITES]:
            lines.append(f"{name_ranks(ranks)} called {function} at {site}")
        if len(sites) > _MAX_SITES:
            more = sorted(rank for _, ranks in sites[_MAX_SITES:] for rank in ranks)
            lines.append(f"{name_ranks(more)} called it at {len(sites) - _MAX_SITES} more lines")
    return lines


def _block_lines(sides: Sequence[CallingRanks]) -> list[str]:
    return [
        f"on {name_ranks(side.ranks)} {show_block(side.facts)}"
        f" ({show_contents(side.facts, [other.facts for other in sides if other is not side])})"
        for side in sides[:_MAX_SIDES]
    ]


def _are_apart(sides: Sequence[CallingRanks]) -> bool:
    """Whether no two sides share a call site: then the order may have slipped, with equal kinds too."""
    seen: set[tuple[str, str]] = set()
    for side in sides:
        if not seen.isdisjoint(side.sites):
            return False
        seen.update(side.sites)
    return True


def _previous_lines(sides: Sequence[CallingRanks]) -> list[str]:
    """Where the order has slipped, the op before says where to look."""
    callers: dict[str, list[int]] = {}
    for side in sides[:_MAX_SIDES]:
        for previous, ranks in list(side.previous.items())[:_MAX_SITES]:
            callers.setdefault(previous, []).extend(ranks)
    return [
        f"before it, {name_ranks(sorted(ranks))} called {previous}"
        for previous, ranks in callers.items()
    ]


def _explain_splits(
    calls: Sequence[dict[str, Any]],
    side: CallingRanks,
    *,
    group: str,
    seq: int,
    global_ranks: Sequence[int],
) -> MismatchError:
    pairs = []
    for i, sender in enumerate(calls):
        for j, receiver in enumerate(calls):
            given = _entry(sender, "sends", j)
            wanted = _entry(receiver, "expects", i)
            if given is not None and wanted is not None and given != wanted:
                pairs.append((global_ranks[i], global_ranks[j], given, wanted))
    details = [
        f"rank {source} sends {given} element{'' if given == 1 else 's'} to rank {target}, "
        f"which expects {wanted}"
        for source, target, given, wanted in pairs[:_MAX_PAIRS]
    ]
    if len(pairs) > _MAX_PAIRS:
        details.append(f"and {len(pairs) - _MAX_PAIRS} more pairs")
    details += [*_call_lines([side]), INTACT]
    involved = sorted({rank for pair in pairs for rank in pair[:2]})
    # A rank in each of several pairs has the splits that do not fit the others'.
    common = [rank for rank in involved if all(rank in pair[:2] for pair in pairs)]
    odd = common if len(pairs) > 1 and len(common) == 1 else []
    whose = f"on {name_ranks(odd)}" if odd else f"between {name_ranks(involved or global_ranks)}"
    return MismatchError(
        f"all_to_all #{seq} on group '{group}' differs between ranks: split sizes do not match {whose}",
        kind="all_to_all",
        seq=seq,
        group=group,
        ranks=odd or involved,
        sides=[side.to_json()],
        details=details,
        hint=_hint_of_splits(calls),
    )


def _hint_of_splits(calls: Sequence[Mapping[str, Any]]) -> str:
    if all(call["function"].startswith("all_to_all_list") for call in calls):
        return "all arrays of all ranks must have one shape"
    given = [call.get("sends") for call in calls]
    if None not in given and given == [call.get("expects") for call in calls]:
        return (
            "each rank expects from the others what it sends to them: exchange the sizes first, by an "
            "all_to_all of them"
        )
    return "input_split_sizes[j] of rank i must be output_split_sizes[i] of rank j"


def _entry(call: Mapping[str, Any], name: str, index: int) -> int | None:
    counts = call.get(name)
    return counts[index] if counts is not None and index < len(counts) else None


def _parse(text: bytes) -> dict[str, Any]:
    unknown: dict[str, Any] = {"facts": {"kind": "?"}, "function": "an op", "call_site": UNKNOWN}
    try:
        parsed = json.loads(text)
    except ValueError:
        return unknown
    if not isinstance(parsed, dict) or not isinstance(parsed.get("facts"), dict):
        return unknown
    if "comm" in parsed:
        parsed["function"] = f"{parsed['function']} ({parsed['comm']})"
    return unknown | {name: value for name, value in parsed.items() if value is not None}


def _is_short(sides: Sequence[CallingRanks], odd: Sequence[int], seq: int) -> bool:
    apart = [side for side in sides if set(side.ranks) <= set(odd)]
    usual = [side for side in sides if side not in apart]
    return bool(apart and usual) and all(
        is_short_batch(side.facts.get("shape"), usual[0].facts.get("shape"), seq) for side in apart
    )


def _backward_hint(sides: Sequence[CallingRanks]) -> str | None:
    """Where some are in a backward pass and others are not."""
    passes = [any(f"({BACKWARD_OF}" in name for name, _ in side.sites) for side in sides]
    if all(passes) or not any(passes):
        return None
    others = sorted(
        rank
        for side, is_pass in zip(sides, passes, strict=True)
        if not is_pass
        for rank in side.ranks
    )
    return (
        f"{name_ranks(others)} ran no backward pass there: see whether the tensor of the op required grad, "
        "and backward() was called"
    )


def _join_hint(sides: Sequence[CallingRanks]) -> str | None:
    """Where some count who still has batches in a Join block, and others are elsewhere."""
    counting = [side for side in sides if side.facts.get("form") == Variant.JOIN_COUNT.label]
    if not counting or len(counting) == len(sides):
        return None
    joined = sorted(
        rank
        for side in counting
        for (function, _), ranks in side.sites.items()
        if HAS_JOINED in function
        for rank in ranks
    )
    if not joined:
        return (
            "each step begins with one Join.notify_join_context; main_hook makes the collectives of a step, "
            "all of them and no other"
        )
    others = sorted(rank for side in sides if side not in counting for rank in side.ranks)
    return (
        f"{name_ranks(joined)} ran out of batches and joined: main_hook must make every collective that "
        f"{name_ranks(others)} made after Join.notify_join_context, and no other"
    )


def _hint(
    differing: Sequence[str], odd: Sequence[int], *, are_apart: bool, is_short: bool
) -> str | None:
    where = f" on {name_ranks(odd)}" if odd else ""
    if "kind" in differing or "form" in differing:
        return f"a branch{where} calls other ops, or skips one: compare the lines of the calls"
    if "block" in differing:
        return f"see what decides which arrays go into the block{where}"
    if list(differing) == ["device"]:
        return "give arrays on a GPU on all ranks, or on none"
    if differing == ["objects"]:
        return f"see what decides how many objects are in the list{where}"
    if {"shape", "counts", "input", "objects"} & set(differing):
        if are_apart:
            return f"the calls are at different lines: see which branch was taken{where}, then the sizes"
        if "dtype" in differing and "shape" in differing:
            return other_array_hint(where)
        return size_hint(where, is_short_batch=is_short)
    if {"dtype", "op"} <= set(differing):
        return TWO_CALLS_HINT
    if "dtype" in differing:
        return f"see where the arrays{where} get their dtype: all ranks need the same"
    if "op" in differing:
        return "use the same reduce op on all ranks"
    if "factor" in differing:
        return "use one factor on all ranks; to weigh ranks, multiply each one's array and reduce with SUM"
    if "sums" in differing:
        return SUMS_HINT
    if "root" in differing:
        return f"see where src or dst comes from{where}: all ranks must name the same global rank"
    if "dst" in differing:
        return f"see where dst comes from{where}: rank r sends to dst[r], and all ranks need the same list"
    if "gather_dim" in differing:
        return f"see where gather_dim comes from{where}: all ranks need the same"
    return None
