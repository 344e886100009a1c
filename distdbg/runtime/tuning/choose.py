"""Makes a profile of the times of trials. Pure.

Another variant has to be faster by more than what two measurements of one thing differ by on a machine that
others use: by MOST_SHARE in the best of its turns, and in the middle one. Than the default, or what the next
smaller size was found to go by. What was not measured stays as it is by default, but that sizes above the
largest that was go as that one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from distdbg.ops.call import Kind
from distdbg.runtime.tuning.profile import CLASSES, KINDS, NEVER, Profile, TransportKind, Ways
from distdbg.runtime.tuning.trials import (
    ASLEEP,
    DEFAULT,
    EARLY,
    LARGE_TILE,
    NEVER_STREAMED,
    SIZES,
    SMALL_TILE,
    STREAM,
    VARIANTS,
    Trial,
)

#: A variant is chosen that takes at most this share of the default's time. What gained less in trials gained
#: nothing in jobs, on a machine where both were measured.
MOST_SHARE = 0.87
#: How long a rank with a core of its own looks before it yields: 100 rounds where that was measured.
_SPIN_NS = 2400.0

Times = Mapping[str, Mapping[str, Sequence[float]]]


def fastest(times: Mapping[str, Sequence[float]], standing: str | None = None) -> str:
    """The variant to take; `standing`, else the first, is what the others have to beat."""
    if standing is None or standing not in times:
        standing = next(iter(times))
    best, middle = min(times[standing]), median(times[standing])
    chosen, least = standing, best
    for name, measured in times.items():
        is_apart = median(measured) <= MOST_SHARE * middle
        if is_apart and min(measured) <= MOST_SHARE * best and min(measured) < least:
            chosen, least = name, min(measured)
    return chosen


def choose_profile(pairs: Times, crowds: Times, pause_ns: float) -> Profile:
    """What the times of groups with two ranks, and of larger ones, say together."""
    default = Profile()
    profile = replace(
        default,
        pairs=choose_ways(pairs),
        crowds=choose_ways(crowds),
        pushed_nbytes=_pushed(pairs, default.pushed_nbytes),
        spins=max(20, min(2000, round(_SPIN_NS / pause_ns))) if pause_ns > 0 else default.spins,
    )
    if _wins(pairs, STREAM, Kind.BROADCAST, SIZES[2], EARLY):
        profile = replace(profile, stream_nbytes=SIZES[2] // 2)
    elif _wins(pairs, STREAM, Kind.BROADCAST, SIZES[3], NEVER_STREAMED):
        profile = replace(profile, stream_nbytes=NEVER)
    for name in (SMALL_TILE, LARGE_TILE):
        if _wins(pairs, "tile", Kind.REDUCE_SCATTER, SIZES[2], name):
            profile = replace(profile, tile_nbytes=VARIANTS[name].tile_nbytes)
    if _wins(crowds, "sleep", Kind.BARRIER, 0, ASLEEP):
        profile = replace(profile, yield_ns=0)
    return profile


def choose_ways(times: Times) -> Ways:
    """By kind and class of sizes."""
    ways = Ways()
    for label in KINDS:
        kind = Kind[label.upper()]
        last = TransportKind.SLOTS
        for at in range(len(CLASSES)):
            measured = times.get(Trial(kind, SIZES[at], ()).name)
            is_beyond = not any(Trial(kind, nbytes, ()).name in times for nbytes in SIZES[at:])
            if measured is not None:
                last = TransportKind(fastest(measured, last))
            if measured is not None or is_beyond:
                ways = ways.with_way(kind, at, last)
    return ways


def _pushed(times: Times, default: int) -> int:
    """Up to which size a message is pushed: what is direct is so for all that is longer."""
    limit, last = default, str(DEFAULT)
    for least, nbytes in zip(CLASSES, SIZES, strict=True):
        measured = times.get(Trial(Kind.SEND, nbytes, ()).name)
        chosen = last if measured is None else fastest(measured, last)
        if chosen != last:
            limit = default if chosen == DEFAULT else least - 1
        last = chosen
    return limit


def _wins(times: Times, topic: str, kind: Kind, nbytes: int, variant: str) -> bool:
    measured = times.get(Trial(kind, nbytes, (), topic).name)
    return measured is not None and fastest(measured) == variant
