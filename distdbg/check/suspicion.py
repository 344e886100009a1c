"""Warns of ops that ranks may have issued in different orders, or with arrays of different layouts.

Native code compares hashes of call sites and finds the pairs that cross (native/core/site_order.hpp);
only then the ranks exchange descriptions. The op is carried out anyway: this is never an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from distdbg.check.arrays import differing_ranks, few, say_ranks, sites_of
from distdbg.log.logs import get_logger
from distdbg.native import Recorder
from distdbg.record.writing import write_finding

_log = get_logger("check")

#: As native code gives it: what is suspected, seq, seq of the op that it crossed; then by rank the hash of
#: the call site, whether an array is not contiguous, and what it called.
NativeSuspicion = tuple[str, int, int, list[int], list[bool], list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """What was noticed, with the ranks as users know them."""

    text: str
    group: str
    seq: int
    ranks: list[int]
    """Those that differ, or all where no side has a majority."""
    sites: dict[int, str]
    """The call site of each rank."""


def explain_suspicion(
    found: NativeSuspicion, *, group: str, global_ranks: Sequence[int]
) -> Suspicion:
    """Put one finding in words."""
    kind, seq, other_seq, hashes, are_strided, words = found
    sites = dict(zip(global_ranks, sites_of(words), strict=True))
    sides: dict[str, list[int]] = defaultdict(list)
    if kind == "crossed":
        ranks = differing_ranks(hashes, global_ranks)
        for rank, site in sites.items():
            sides[site].append(rank)
        lines = [f"{say_ranks(at)} called it at {site}" for site, at in sides.items()]
        first = (
            f"op #{seq} and op #{other_seq} on group '{group}' look swapped between ranks: "
            f"each was called at the other's line"
        )
        end = "the calls are equal, so both ops were carried out"
    else:
        ranks = differing_ranks(are_strided, global_ranks)
        for (rank, site), is_strided in zip(sites.items(), are_strided, strict=True):
            how = "not contiguous" if is_strided else "contiguous"
            sides[f"{how}, at {site}"].append(rank)
        lines = [f"{say_ranks(at)}: {how}" for how, at in sides.items()]
        first = f"op #{seq} on group '{group}' has arrays of different memory layouts"
        end = "the shapes are equal, so the op was carried out element by element, by index"
    return Suspicion(
        text="\n  ".join([first, *few(lines), end]),
        group=group,
        seq=seq,
        ranks=ranks,
        sites=sites,
    )


def warn(suspicion: Suspicion, rank: int) -> None:
    """Log it on one rank."""
    _log.warning("%s", suspicion.text, rank=rank)


def record_suspicion(recorder: Recorder, group: int, suspicion: Suspicion) -> None:
    """Write it into the record of one rank; `group` is the group's number there."""
    what, *details = suspicion.text.split("\n  ")
    facts: dict[str, object] = {
        "type": "Suspicion",
        "what": what,
        "seq": suspicion.seq,
        "group": suspicion.group,
        "ranks": suspicion.ranks[:64],
        "details": details,
    }
    write_finding(recorder, group, suspicion.seq, facts)
