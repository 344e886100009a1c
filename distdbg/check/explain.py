"""A mismatch in words: the ranks' own descriptions of their calls become one error.

Pure functions of plain facts. Ranks are the numbers that users know (global ranks), given by
`names`.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from distdbg.errors import MismatchError, format_ranks

#: The order in which differences are told: what was called comes before how.
_ASPECTS = ("kind", "dtype", "shape", "counts", "op", "root")


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
    descriptions: Sequence[bytes], *, group: str, seq: int, names: Sequence[int], this_rank: int
) -> MismatchError:
    """The same error on every rank, up to the last line: who called what, and where."""
    calls = [_parse(text) for text in descriptions]
    by_facts: dict[str, list[int]] = defaultdict(list)
    for rank, call in zip(names, calls, strict=True):
        by_facts[json.dumps(call["facts"], sort_keys=True)].append(rank)
    sides = sorted(by_facts.values(), key=lambda ranks: (-len(ranks), ranks))
    first = dict(zip(names, calls, strict=True))
    if len(sides) == 1:  # alike to all but the sizes of an exchange
        return _explain_splits(calls, group=group, seq=seq, names=names)
    kinds = Counter(call["facts"].get("kind", "?") for call in calls)
    kind = kinds.most_common(1)[0][0]
    differing = [
        aspect
        for aspect in _ASPECTS
        if len({json.dumps(call["facts"].get(aspect)) for call in calls}) > 1
    ]
    texts = [
        f"{_side(first[ranks[0]]['facts'], differing)} on {_ranks(ranks)}" for ranks in sides[:4]
    ]
    if len(sides) > 4:
        texts.append(f"and {len(sides) - 4} other calls")
    has_majority = len(sides[0]) > len(sides[1])
    odd = sorted(rank for side in sides[1:] for rank in side) if has_majority else []
    what = f"{kind} #{seq}" if len(kinds) == 1 else f"op #{seq}"
    details = []
    for ranks in sides[:4]:
        sites: dict[str, list[int]] = defaultdict(list)
        for rank in ranks:
            sites[f"{first[rank]['function']} at {first[rank]['call_site']}"].append(rank)
        details += [f"{_ranks(at)} called {site}" for site, at in list(sites.items())[:4]]
    details.append("no data was exchanged; the group is still usable")
    if this_rank in odd:
        details.append(
            "this rank is the odd one out"
            if len(odd) == 1
            else f"this rank is one of the odd ones: {format_ranks(odd)}"
        )
    return MismatchError(
        f"{what} on group '{group}' differs between ranks: {', '.join(texts)}",
        kind=kind,
        seq=seq,
        group=group,
        ranks=odd or list(names),
        details=details,
        hint=_hint(differing, odd),
    )


def _explain_splits(
    calls: Sequence[dict[str, Any]], *, group: str, seq: int, names: Sequence[int]
) -> MismatchError:
    pairs = []
    for i, sender in enumerate(calls):
        for j, receiver in enumerate(calls):
            given = _entry(sender, "sends", j)
            wanted = _entry(receiver, "expects", i)
            if given is not None and wanted is not None and given != wanted:
                pairs.append((names[i], names[j], given, wanted))
    details = [
        f"rank {source} sends {given} elements to rank {target}, which expects {wanted}"
        for source, target, given, wanted in pairs[:8]
    ]
    if len(pairs) > 8:
        details.append(f"and {len(pairs) - 8} more pairs")
    sites: dict[str, list[int]] = defaultdict(list)
    for rank, call in zip(names, calls, strict=True):
        sites[f"{call['function']} at {call['call_site']}"].append(rank)
    details += [f"{_ranks(at)} called {site}" for site, at in list(sites.items())[:4]]
    details.append("no data was exchanged; the group is still usable")
    involved = sorted({rank for pair in pairs for rank in pair[:2]})
    return MismatchError(
        f"all_to_all #{seq} on group '{group}' differs between ranks: split sizes do not match "
        f"between {_ranks(involved)}",
        kind="all_to_all",
        seq=seq,
        group=group,
        ranks=involved,
        details=details,
        hint="input_split_sizes[j] of rank i must be output_split_sizes[i] of rank j",
    )


def _entry(call: Mapping[str, Any], name: str, index: int) -> int | None:
    counts = call.get(name)
    return counts[index] if counts is not None and index < len(counts) else None


def _parse(text: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
        if isinstance(parsed, dict) and isinstance(parsed.get("facts"), dict):
            if "comm" in parsed:
                parsed["function"] = f"{parsed['function']} ({parsed['comm']})"
            site = str(parsed.get("call_site", "an unknown line"))
            return parsed | {"call_site": os.path.basename(site)}
    except ValueError:
        pass
    return {"facts": {"kind": "?"}, "function": "an op", "call_site": "an unknown line"}


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def _side(facts: Mapping[str, Any], differing: Sequence[str]) -> str:
    """The values that differ, and only those: 'float32[1024]', 'broadcast', 'op MAX', 'root 1'."""
    parts = []
    array_aspects = {"dtype", "shape", "counts"} & set(differing)
    if "kind" in differing:
        parts.append(str(facts.get("kind", "?")))
    if array_aspects and "dtype" in facts:
        sizes = facts.get("shape", facts.get("counts", []))
        dims = ",".join(str(size) for size in sizes[:8]) + (",..." if len(sizes) > 8 else "")
        parts.append(f"{facts['dtype']}[{dims}]")
    if "op" in differing:
        parts.append(f"op {facts.get('op', 'none')}")
    if "root" in differing:
        parts.append(f"root {facts.get('root', 'none')}")
    return " ".join(parts) or str(facts.get("kind", "?"))


def _hint(differing: Sequence[str], odd: Sequence[int]) -> str | None:
    where = f" on {_ranks(odd)}" if odd else ""
    if "kind" in differing:
        return f"some branch{where} calls other ops, or skips one: compare the lines above"
    if "shape" in differing or "counts" in differing:
        return (
            f"look at what decides the size of the arrays{where}; pad or drop a shorter last batch"
        )
    if "dtype" in differing:
        return f"convert the arrays{where} to one dtype"
    return None
