"""Suspicions: ops that ranks may have issued in different orders. A warning, never an error.

Native code compares hashes of call sites and finds the pairs that cross (native/core/site_order.hpp);
only then the ranks exchange descriptions. The op is carried out anyway. This file writes the
warning.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from distdbg.check.arrays import few, odd_ranks, say_ranks, sites_of
from distdbg.log.logs import get_logger
from distdbg.native import Recorder
from distdbg.record.writing import write_finding

_log = get_logger("check")

#: verdict, seq, seq of the op that it crossed, then by rank: sites, whether not contiguous, words.
Facts = tuple[str, int, int, list[int], list[bool], list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectedError:
    """What was noticed, with the ranks as users know them."""

    text: str
    group: str
    seq: int
    ranks: list[int]
    """The odd ones, or all where no side has a majority."""
    sites: dict[int, str]
    """The call site of each rank."""


def explain_suspicion(facts: Facts, *, group: str, global_ranks: Sequence[int]) -> SuspectedError:
    """Put one finding in words."""
    verdict, seq, other_seq, hashes, stand_ins, words = facts
    sites = dict(zip(global_ranks, sites_of(words), strict=True))
    sides: dict[str, list[int]] = defaultdict(list)
    if verdict == "crossed":
        ranks = odd_ranks(hashes, global_ranks)
        for rank, site in sites.items():
            sides[site].append(rank)
        lines = [f"{say_ranks(at)} called it at {site}" for site, at in sides.items()]
        first = (
            f"op #{seq} and op #{other_seq} on group '{group}' look swapped between ranks: "
            f"each was called at the other's line"
        )
        end = "the calls are equal, so both ops were carried out"
    else:
        ranks = odd_ranks(stand_ins, global_ranks)
        for (rank, site), is_stand_in in zip(sites.items(), stand_ins, strict=True):
            how = "not contiguous" if is_stand_in else "contiguous"
            sides[f"{how}, at {site}"].append(rank)
        lines = [f"{say_ranks(at)}: {how}" for how, at in sides.items()]
        first = f"op #{seq} on group '{group}' has arrays of different memory layouts"
        end = "the shapes are equal, so the op was carried out element by element, by index"
    return SuspectedError(
        text="\n  ".join([first, *few(lines), end]),
        group=group,
        seq=seq,
        ranks=ranks,
        sites=sites,
    )


def warn(suspicion: SuspectedError, rank: int) -> None:
    """Log it on one rank."""
    _log.warning("%s", suspicion.text, rank=rank)


def record_suspicion(recorder: Recorder, group: int, suspicion: SuspectedError) -> None:
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
