"""Ops that ranks may have issued in different orders: a warning, never an error.

Native code compares hashes of call sites and finds the pairs that cross (native/core/site_order.hpp);
only then the ranks exchange words, and the op is carried out all the same. Here it is told.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import CodeType, FrameType

import distdbg
from distdbg.check.arrays import call_site_of, odd_ranks, say_ranks, shorten

_PACKAGE = os.path.dirname(os.path.abspath(distdbg.__file__)) + os.sep
_log = logging.getLogger("distdbg.check")

#: verdict, seq, seq of the op that it crossed, then by rank: sites, whether not contiguous, words.
Facts = tuple[str, int, int, list[int], list[bool], list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """What was noticed, with the ranks as users know them."""

    text: str
    group: str
    seq: int
    other_seq: int
    """The op that this one may have been swapped with; 0 when it is about layouts."""
    ranks: list[int]
    """The odd ones, or all where no side has a majority."""
    sites: dict[int, str]
    """The call site of each rank."""


def explain_suspicion(facts: Facts, *, group: str, names: Sequence[int]) -> Suspicion:
    """Put one finding in words."""
    verdict, seq, other_seq, hashes, stand_ins, words = facts
    sites = {
        rank: call_site_of(text) or "an unknown line"
        for rank, text in zip(names, words, strict=True)
    }
    sides: dict[str, list[int]] = defaultdict(list)
    if verdict == "crossed":
        ranks = odd_ranks(hashes, names)
        for rank, site in sites.items():
            sides[site].append(rank)
        lines = [f"{say_ranks(at)} came from {site}" for site, at in sides.items()]
        first = (
            f"op #{seq} and op #{other_seq} on group '{group}' look swapped between ranks: "
            f"each came from the other's line"
        )
        end = "the calls are alike, so both ops were carried out"
    else:
        ranks = odd_ranks(stand_ins, names)
        for (rank, site), is_stand_in in zip(sites.items(), stand_ins, strict=True):
            how = "not contiguous" if is_stand_in else "contiguous"
            sides[f"{how}, at {site}"].append(rank)
        lines = [f"{say_ranks(at)}: {how}" for how, at in sides.items()]
        first = f"op #{seq} on group '{group}' has arrays of different memory layouts"
        end = "the shapes are alike, so the op was carried out, element by element as they are indexed"
        other_seq = 0
    return Suspicion(
        text="\n  ".join([first, *shorten(lines), end]),
        group=group,
        seq=seq,
        other_seq=other_seq,
        ranks=ranks,
        sites=sites,
    )


def warn(suspicion: Suspicion) -> None:
    """Log it, once per suspicion and rank."""
    _log.warning("%s", suspicion.text)


_hashes: dict[tuple[CodeType, int], int] = {}


def site_hash() -> int:
    """Hash of the user's line that issues an op, the same on every host; 0 when there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            key = (code, frame.f_lineno)
            known = _hashes.get(key)
            if known is None:
                name = f"{os.path.basename(code.co_filename)}:{frame.f_lineno}:{code.co_qualname}"
                digest = blake2b(name.encode(), digest_size=8).digest()
                # Code that is made as the program runs must not fill the memory.
                if len(_hashes) >= 1 << 16:
                    _hashes.clear()
                known = _hashes[key] = int.from_bytes(digest, "little") or 1
            return known
        frame = frame.f_back
    return 0
