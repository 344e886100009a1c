"""Facts of a call as text for messages: only those that differ, and short.

`float32[1024]`, `broadcast`, `op MAX`, `root 1`, `a block of 3`. Long shapes and lists keep their head
and the first place that differs from what another side has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]

#: The order in which differences are told: what was called comes before how.
ASPECTS = (
    "kind",
    "form",
    "block",
    "part",
    "dtype",
    "shape",
    "counts",
    "input",
    "objects",
    "device",
    "order",
    "op",
    "factor",
    "sums",
    "root",
    "dst",
    "gather_dim",
)
_SIZES = ("shape", "counts")
#: By the fact `sums` of check/signature.py.
_SUMS = {
    "": "sums in rank order",
    "as gloo": "sums in gloo's order",
    "as gloo, block as one": "sums of the whole block in gloo's order",
}
#: Where dtype and reduce op differ it is no one call with another argument.
TWO_CALLS_HINT = (
    "these are two different calls: see which call one side made, or left out, before this one"
)
#: What to do where the orders of addition differ.
SUMS_HINT = "use one function of one library on all ranks, and DISTDBG_TORCH_SUMS alike on all"
_HEAD = 8
_LONGEST_CONTENT = 60


def differing_aspects(all_facts: Sequence[Facts]) -> list[str]:
    """The aspects in which these facts are not all alike."""
    return [
        aspect
        for aspect in ASPECTS
        if any(facts.get(aspect) != all_facts[0].get(aspect) for facts in all_facts)
    ]


def show_sums(sums: str) -> str:
    """In which order ranks are added up, by the fact of that name; '': in their own."""
    return _SUMS.get(sums, f"sums {sums}")


def called(facts: Facts) -> str:
    """What was called: the function, where the arrays alone do not tell, else the kind."""
    return str(facts.get("form") or facts.get("kind", "?"))


def show_side(facts: Facts, differing: Sequence[str], others: Sequence[Facts]) -> str:
    """What one side has where it differs: 'float32[1024]', 'broadcast', 'op MAX root 1'."""
    parts = []
    if "kind" in differing or "form" in differing:
        # The rest follows from that; the array may help to find the call.
        is_array = "dtype" in facts and "kind" in differing
        return f"{called(facts)} {show_array(facts)}" if is_array else called(facts)
    if "block" in differing:
        parts.append(show_block(facts, others))
        return " ".join(parts)  # what this op of it is follows from that
    if "objects" in differing and "objects" in facts:
        parts.append(f"{facts['objects']} objects")
    if {"dtype", *_SIZES} & set(differing) and "dtype" in facts:
        parts.append(show_array(facts, others))
    if "input" in differing:
        parts.append(f"input [{show_sizes(facts['input'])}]" if "input" in facts else "blocks")
    # An op on the host does not say where its arrays were: from a GPU they may have been copied.
    if "device" in differing and (differing == ["device"] or "device" in facts):
        parts.append(f"on {facts.get('device', 'cpu')}")
    if "order" in differing:
        order = facts.get("order")
        parts.append("row-major" if order is None else f"memory order {order}")
    if "op" in differing:
        parts.append(f"op {facts.get('op', 'none')}")
    elif "factor" in differing:
        parts.append(f"factor {facts.get('factor', 'none')}")
    if "sums" in differing:
        parts.append(show_sums(facts.get("sums", "")))
    if "root" in differing:
        parts.append(f"root {facts.get('root', 'none')}")
    if "dst" in differing:
        rivals = [other["dst"] for other in others if "dst" in other]
        parts.append(f"dst [{show_sizes(facts.get('dst', ()), rivals)}]")
    if "gather_dim" in differing:
        parts.append(f"gather_dim {facts.get('gather_dim', 0)}")
    return " ".join(parts) or called(facts)


def show_array(facts: Facts, others: Sequence[Facts] = ()) -> str:
    """'float32[4,3]', 'float32 blocks of 1,2,4', or 'float32' where sizes are not compared."""
    for name, form in (("shape", "[{}]"), ("counts", " blocks of {}")):
        if name in facts:
            rivals = [other[name] for other in others if name in other]
            return f"{facts['dtype']}{form.format(show_sizes(facts[name], rivals))}"
    return str(facts["dtype"])


def show_sizes(sizes: Sequence[int], rivals: Sequence[Sequence[int]] = ()) -> str:
    """'4,3'; of a long list the head, its length, and the first place where a rival differs."""
    if len(sizes) <= _HEAD:
        return ",".join(map(str, sizes))
    places = [
        at
        for rival in rivals
        for at in range(min(len(sizes), len(rival)))
        if at >= _HEAD - 2 and sizes[at] != rival[at]
    ]
    head = ",".join(map(str, sizes[: _HEAD - 2]))
    at = f"; {sizes[min(places)]} at {min(places)}" if places else ""
    return f"{head},... {len(sizes)} in all{at}"


def show_block(facts: Facts, others: Sequence[Facts] = ()) -> str:
    """'a block of 3', or 'no block'; with others of that length, where it first differs from them:
    'all_reduce float32[4] op SUM (2 of a block of 3)'."""
    contents = facts.get("block")
    if contents is None:
        return "no block"
    rivals = [other.get("block") for other in others]
    if not rivals or any(rival is None or len(rival) != len(contents) for rival in rivals):
        return f"a block of {len(contents)}"
    at = min(_first_difference(contents, rival) for rival in rivals if rival is not None)
    content = contents[at] if len(contents[at]) <= _LONGEST_CONTENT else "an op"
    return f"{content} ({at + 1} of a block of {len(contents)})"


def show_contents(facts: Facts, others: Sequence[Facts]) -> str:
    """The ops of a coalesced block, from the first that differs from another side's on."""
    contents = facts.get("block")
    if contents is None:
        return f"one {called(facts)} alone"
    lists = [other["block"] for other in others if other.get("block") is not None]
    first = min((_first_difference(contents, rival) for rival in lists), default=0)
    low = max(0, min(first, len(contents) - 1))
    shown = ", ".join(contents[low : low + 3])
    more = len(contents) - low - 3
    until = low + min(3, len(contents) - low)
    which = f"{until}" if until == low + 1 else f"{low + 1} to {until}"
    return f"{which} of {len(contents)}: {shown}" + (", ..." if more > 0 else "")


def content_text(facts: Facts) -> str:
    """One op of a block, in words that are alike on all ranks: 'all_reduce float32[4] op SUM'."""
    parts = [called(facts)]
    if "dtype" in facts:
        parts.append(show_all(facts))
    if "input" in facts:
        parts.append(f"input {facts['input']}")
    if "op" in facts:
        parts.append(f"op {facts['op']}")
    if "factor" in facts:
        parts.append(f"factor {facts['factor']}")
    if "root" in facts:
        parts.append(f"root {facts['root']}")
    return " ".join(parts)


def show_all(facts: Facts) -> str:
    """As show_array, with every size: what is compared must be whole."""
    for name, form in (("shape", "[{}]"), ("counts", " blocks of {}")):
        if name in facts:
            return f"{facts['dtype']}{form.format(','.join(map(str, facts[name])))}"
    return str(facts["dtype"])


def _first_difference(ours: Sequence[str], theirs: Sequence[str]) -> int:
    for at, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if mine != other:
            return at
    return min(len(ours), len(theirs))
