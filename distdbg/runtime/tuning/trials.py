"""Decides which ops are timed in which variants, and in which order; pure.

What matters most comes first: when the time is over, what was not timed stays as it is by default. Sizes are
those that decide (`deciding_nbytes`), one in the middle of each class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from distdbg.ops.call import Kind
from distdbg.runtime.tuning.profile import HALF_NBYTES, NEVER, Profile, TransportKind, Ways

#: One of each class, and the order in which they are timed.
SIZES = (64 << 10, 512 << 10, 4 << 20, 16 << 20)
_ORDER = (512 << 10, 4 << 20, 64 << 10, 16 << 20)

DEFAULT, HALF, DIRECT = TransportKind.SLOTS, TransportKind.HALF, TransportKind.DIRECT
EARLY, NEVER_STREAMED = "streamed", "not streamed"
SMALL_TILE, LARGE_TILE = "small tile", "large tile"
ASLEEP = "asleep"
#: The topic of trials about writing around the cache.
STREAM = "stream"

_DIRECT = Profile(
    pairs=Ways.all(TransportKind.DIRECT),
    crowds=Ways.all(TransportKind.DIRECT),
    pushed_nbytes=0,
    stream_nbytes=8 << 20,
)
VARIANTS: dict[str, Profile] = {
    DEFAULT: Profile(),
    HALF: Profile(pairs=Ways.all(TransportKind.HALF), crowds=Ways.all(TransportKind.HALF)),
    DIRECT: _DIRECT,
    EARLY: Profile(stream_nbytes=1 << 20),
    NEVER_STREAMED: Profile(stream_nbytes=NEVER),
    SMALL_TILE: replace(_DIRECT, tile_nbytes=128 << 10),
    LARGE_TILE: replace(_DIRECT, tile_nbytes=2 << 20),
    ASLEEP: Profile(yield_ns=0),
}

_PAIR_KINDS = (
    Kind.ALL_REDUCE,
    Kind.BROADCAST,
    Kind.ALL_GATHER,
    Kind.REDUCE_SCATTER,
    Kind.SEND,
    Kind.ALL_TO_ALL,
)
_CROWD_KINDS = tuple(kind for kind in _PAIR_KINDS if kind is not Kind.SEND)
#: About as many bytes are moved by a block of ops as make its time worth something.
_BLOCK_NBYTES = 2 << 20
_MOST_OPS = 24
#: How often the variants of a trial take turns: often where a block is short, since something disturbs some.
_REPETITIONS = {64 << 10: 15, 512 << 10: 9}
_LEAST_REPETITIONS = 3


@dataclass(frozen=True, slots=True)
class Trial:
    """One op, in variants of which the first is the default."""

    kind: Kind
    nbytes: int
    variants: tuple[str, ...]
    #: What is decided by it.
    topic: str = "way"

    @property
    def name(self) -> str:
        """A key: 'way all_reduce 524288'."""
        return f"{self.topic} {self.kind.label} {self.nbytes}"

    @property
    def ops(self) -> int:
        """How many make a block; before each second one its ranks write what they send."""
        return max(1, min(_MOST_OPS, _BLOCK_NBYTES // max(self.nbytes, 1)) // 2) * 2

    @property
    def repetitions(self) -> int:
        """How often its variants take turns."""
        return _REPETITIONS.get(self.nbytes, _LEAST_REPETITIONS)


def trials_for(ranks: int, cores: int) -> list[Trial]:
    """Those of a group of so many ranks, which stands for all with two ranks, or for all larger ones."""
    return list(_pair_trials() if ranks == 2 else _crowd_trials(ranks, cores))


def _pair_trials() -> Iterator[Trial]:
    for nbytes in _ORDER:
        for kind in _PAIR_KINDS:
            # All of the largest would take as long as everything else.
            if nbytes < SIZES[-1] or kind in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.SEND):
                yield Trial(kind, nbytes, _ways_of(kind, nbytes))
        if nbytes == SIZES[2]:
            yield Trial(Kind.BROADCAST, nbytes, (DEFAULT, EARLY), STREAM)
            yield Trial(Kind.REDUCE_SCATTER, nbytes, (DIRECT, SMALL_TILE, LARGE_TILE), "tile")
        if nbytes == SIZES[3]:
            yield Trial(Kind.BROADCAST, nbytes, (DEFAULT, NEVER_STREAMED), STREAM)


def _crowd_trials(ranks: int, cores: int) -> Iterator[Trial]:
    if ranks > cores:
        yield Trial(Kind.BARRIER, 0, (DEFAULT, ASLEEP), "sleep")
    for nbytes in _ORDER:
        for kind in _CROWD_KINDS:
            if nbytes < SIZES[-1]:
                yield Trial(kind, nbytes, _ways_of(kind, nbytes))


def _ways_of(kind: Kind, nbytes: int) -> tuple[str, ...]:
    # An exchange has rounds of its own, and messages have a channel.
    has_rounds = kind not in (Kind.ALL_TO_ALL, Kind.SEND) and nbytes > HALF_NBYTES
    return (DEFAULT, HALF, DIRECT) if has_rounds else (DEFAULT, DIRECT)
