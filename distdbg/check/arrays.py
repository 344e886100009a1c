"""Error messages about arrays of an op: NaN or Inf, changed, diverged.

Native code brings one Trouble and the words of each rank (native/core/checks.hpp, explain.py). Pure.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from distdbg.errors import (
    BufferChangedError,
    CollectiveError,
    DivergedError,
    NonFiniteError,
    format_ranks,
)
from distdbg.ops import sites

#: Flags of a Trouble, as in native/core/checks.hpp.
HAS_NONFINITE_INPUT = 1
HAS_CHANGED_BUFFER = 2
FIRST_IS_NAN = 4

_INTACT = "nothing was written; the group is still usable"
_WRITTEN = "the outputs have been written; the group is still usable"
_MAX_LINES = 8


@dataclass(frozen=True, slots=True)
class ArrayDifference:
    """One rank's part; counts and indexes are of elements."""

    flags: int
    array: int
    bad_count: int
    first: int
    before: int
    elements: int
    checksum: int


class ArrayFault(Protocol):
    """The part of a native error that is read here."""

    fault: str
    descriptions: list[bytes]
    troubles: list[tuple[int, int, int, int, int, int, int]]


def explain_arrays(
    error: ArrayFault,
    op: str,
    *,
    global_ranks: Sequence[int],
    started_at: str,
    kind: str,
    seq: int,
    group: str,
) -> CollectiveError:
    """The error for all ranks. `op` is 'all_reduce #7 on group 'dp''; `global_ranks`: those of the group."""
    troubles = [ArrayDifference(*facts) for facts in error.troubles]
    at = sites_of(error.descriptions, started_at)
    fields: dict[str, Any] = {"kind": kind, "seq": seq, "group": group}
    if error.fault == "nonfinite":
        return _explain_nonfinite(troubles, at, op, global_ranks, fields)
    if error.fault == "changed":
        return _explain_changed(troubles, at, error.descriptions, op, global_ranks, fields)
    return _explain_diverged(troubles, at, op, global_ranks, fields)


def sites_of(descriptions: Sequence[bytes], otherwise: str = sites.UNKNOWN) -> list[str]:
    """'train.py:88 (step)' of each rank's own words; `otherwise` where it sent none."""
    whole = [_site_of(text) or otherwise for text in descriptions]
    short = sites.shorten(whole)
    return [short[site] for site in whole]


def _site_of(description: bytes) -> str | None:
    try:
        return str(json.loads(description)["call_site"])
    except (ValueError, KeyError, TypeError):
        return None


def say_ranks(ranks: Sequence[int]) -> str:
    """'rank 3' or 'ranks 0-2'."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def say_where(at: Sequence[str], global_ranks: Sequence[int], verb: str = "called") -> list[str]:
    """A line for each call site, with its ranks."""
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, site in zip(global_ranks, at, strict=True):
        sides[site].append(rank)
    return few([f"{say_ranks(ranks)} {verb} it at {site}" for site, ranks in sides.items()])


def few(lines: list[str]) -> list[str]:
    """The first few, and how many more there are."""
    if len(lines) <= _MAX_LINES:
        return lines
    return [*lines[:_MAX_LINES], f"and {len(lines) - _MAX_LINES} more"]


def differing_ranks(marks: Sequence[object], global_ranks: Sequence[int]) -> list[int]:
    """The ranks whose mark is not that of the majority; all where there is none."""
    ordered = Counter(marks).most_common()
    if len(ordered) > 1 and ordered[0][1] == ordered[1][1]:
        return list(global_ranks)
    return [rank for rank, mark in zip(global_ranks, marks, strict=True) if mark != ordered[0][0]]


def _explain_nonfinite(
    troubles: Sequence[ArrayDifference],
    at: Sequence[str],
    op: str,
    global_ranks: Sequence[int],
    fields: dict[str, Any],
) -> NonFiniteError:
    bad = [i for i, trouble in enumerate(troubles) if trouble.flags & HAS_NONFINITE_INPUT]
    ranks = [global_ranks[i] for i in bad]
    lines = []
    for i in bad:
        trouble = troubles[i]
        value = "NaN" if trouble.flags & FIRST_IS_NAN else "Inf"
        place = f"index {trouble.before + trouble.first}"
        if trouble.array:
            place += f" (index {trouble.first} of block {trouble.array})"
        lines.append(
            f"rank {global_ranks[i]}: {trouble.bad_count} of {trouble.elements} elements, the first, "
            f"{value}, at {place}; called at {at[i]}"
        )
    first = troubles[bad[0]]
    amount = (
        f"{first.bad_count} of {first.elements} elements"
        if len(bad) == 1
        else f"{sum(troubles[i].bad_count for i in bad)} elements"
    )
    return NonFiniteError(
        f"{op} was given NaN or Inf by {say_ranks(ranks)}: {amount}",
        ranks=ranks,
        details=[*few(lines), _INTACT],
        hint=f"see what {say_ranks(ranks)} computed before that line",
        **fields,
    )


def _explain_changed(
    troubles: Sequence[ArrayDifference],
    at: Sequence[str],
    descriptions: Sequence[bytes],
    op: str,
    global_ranks: Sequence[int],
    fields: dict[str, Any],
) -> BufferChangedError:
    bad = [i for i, trouble in enumerate(troubles) if trouble.flags & HAS_CHANGED_BUFFER]
    ranks = [global_ranks[i] for i in bad]
    was_before = all(descriptions)  # all ranks noticed, when they met
    if was_before:
        state = _INTACT
    elif fields["seq"] < 0:
        state = "the receiver may have got the old values, the new ones, or a mix"
    else:
        state = "it was found after the op: the outputs of all ranks may be wrong"
    return BufferChangedError(
        f"{op}: {say_ranks(ranks)} changed an array that the op still owned",
        ranks=ranks,
        details=[*say_where([at[i] for i in bad], ranks, "started"), state],
        hint="call wait() on the Work before writing to the array, or pass a copy",
        **fields,
    )


def _explain_diverged(
    troubles: Sequence[ArrayDifference],
    at: Sequence[str],
    op: str,
    global_ranks: Sequence[int],
    fields: dict[str, Any],
) -> DivergedError:
    checksums = [trouble.checksum for trouble in troubles]
    ranks = differing_ranks(checksums, global_ranks)
    if len(ranks) == len(global_ranks):
        what = f"{op} left different results on {say_ranks(ranks)}"
    else:
        what = f"{op} left results on {say_ranks(ranks)} that differ from those of the other ranks"
    sides: dict[int, list[int]] = defaultdict(list)
    for rank, checksum in zip(global_ranks, checksums, strict=True):
        sides[checksum].append(rank)
    lines = [f"checksum {checksum:016x} on {say_ranks(ranks)}" for checksum, ranks in sides.items()]
    return DivergedError(
        what,
        ranks=ranks,
        details=[*few(lines), *say_where(at, global_ranks), _WRITTEN],
        hint="dist.assert_same(array) names the first element that differs",
        **fields,
    )
