"""What is chosen for planted machines: the constants where they are best, other ways where those pay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from distdbg.ops.call import Kind
from distdbg.runtime.tuning.choose import choose_profile, choose_ways, fastest
from distdbg.runtime.tuning.profile import CLASSES, NEVER, Profile, TransportKind, Ways
from distdbg.runtime.tuning.trials import (
    ASLEEP,
    DEFAULT,
    DIRECT,
    EARLY,
    HALF,
    LARGE_TILE,
    NEVER_STREAMED,
    SIZES,
    VARIANTS,
    Trial,
    trials_for,
)

#: What a round of spinning takes where the default was measured.
PAUSE_NS = 24.0
Times = dict[str, dict[str, Sequence[float]]]


def measured(
    ranks: int, cores: int, cost: Callable[[Trial, str], float], jitter: float = 0.01
) -> Times:
    """As `ranks` measures on a machine where variants cost that much."""
    turns = (1 + jitter, 1.0, 1 + jitter / 2)
    return {
        trial.name: {
            variant: [cost(trial, variant) * turn for turn in turns] for variant in trial.variants
        }
        for trial in trials_for(ranks, cores)
    }


def like_here(trial: Trial, variant: str) -> float:
    """One L3 for all cores: slots stay in it."""
    reads_directly = VARIANTS[variant].pushed_nbytes == 0
    return (2.0 if reads_directly else 1.5 if variant == ASLEEP else 1.0) * (trial.nbytes + 1000)


def far_l3(trial: Trial, variant: str) -> float:
    """Private L2 caches: a line that both sides write is slow, one that is read is not."""
    reads_directly = VARIANTS[variant].pushed_nbytes == 0
    return (1.0 if reads_directly else 2.0) * (trial.nbytes + 1000)


def test_a_machine_like_the_one_the_constants_are_from_keeps_them() -> None:
    profile = choose_profile(measured(2, 2, like_here), measured(4, 2, like_here), PAUSE_NS)
    assert profile == Profile()


def test_a_machine_with_a_far_l3_reads_directly() -> None:
    profile = choose_profile(measured(2, 2, far_l3), measured(4, 2, far_l3), PAUSE_NS)
    assert profile.pairs == Ways.all(TransportKind.DIRECT)
    # The largest that was measured of an all_to_all on four ranks speaks for those above.
    assert profile.crowds == Ways.all(TransportKind.DIRECT)
    assert profile.pushed_nbytes == CLASSES[0] - 1


def test_a_class_is_decided_by_its_own_measurement() -> None:
    def cost(trial: Trial, variant: str) -> float:
        is_there = trial.kind is Kind.BROADCAST and trial.nbytes == SIZES[1]
        return (0.5 if is_there else 2.0) if variant == HALF else 1.0

    profile = choose_profile(measured(2, 2, cost), {}, PAUSE_NS)
    assert profile.pairs == Ways().with_way(Kind.BROADCAST, 1, TransportKind.HALF)


def test_what_pays_for_a_size_stays_for_larger_ones_that_do_not_lose_by_it() -> None:
    def cost(trial: Trial, variant: str) -> float:
        is_gain = trial.kind in (Kind.BROADCAST, Kind.SEND) and trial.nbytes == SIZES[1]
        return 0.5 if is_gain and variant == DIRECT else 0.95 if variant == DEFAULT else 1.0

    profile = choose_profile(measured(2, 2, cost), {}, PAUSE_NS)
    assert [profile.pairs.way(Kind.BROADCAST, least) for least in CLASSES] == [
        TransportKind.SLOTS,
        *[TransportKind.DIRECT] * 3,
    ]
    assert profile.pushed_nbytes == CLASSES[1] - 1


def test_messages_stay_pushed_where_the_longest_ones_lose_by_being_read() -> None:
    def cost(trial: Trial, variant: str) -> float:
        is_gain = trial.kind is Kind.SEND and trial.nbytes < SIZES[2]
        return (0.5 if is_gain else 2.0) if variant == DIRECT else 1.0

    profile = choose_profile(measured(2, 2, cost), {}, PAUSE_NS)
    assert profile.pushed_nbytes == Profile().pushed_nbytes


def test_shorter_messages_stay_pushed_where_only_long_ones_gain() -> None:
    def cost(trial: Trial, variant: str) -> float:
        is_gain = trial.kind is Kind.SEND and trial.nbytes >= SIZES[2] and variant == DIRECT
        return 0.5 if is_gain else 1.0

    assert choose_profile(measured(2, 2, cost), {}, PAUSE_NS).pushed_nbytes == CLASSES[2] - 1


@pytest.mark.parametrize(
    ("variant", "field", "value"),
    [
        (EARLY, "stream_nbytes", 2 << 20),
        (NEVER_STREAMED, "stream_nbytes", NEVER),
        (LARGE_TILE, "tile_nbytes", VARIANTS[LARGE_TILE].tile_nbytes),
        (ASLEEP, "yield_ns", 0),
    ],
)
def test_each_setting_is_taken_where_it_pays(variant: str, field: str, value: int) -> None:
    def cost(trial: Trial, each: str) -> float:
        return 0.7 if each == variant else 1.0

    profile = choose_profile(measured(2, 2, cost), measured(4, 2, cost), PAUSE_NS)
    assert getattr(profile, field) == value


@pytest.mark.parametrize(("pause_ns", "spins"), [(24.0, 100), (60.0, 40), (1.2, 2000), (0.0, 100)])
def test_a_rank_looks_for_as_long_whatever_a_pause_takes(pause_ns: float, spins: int) -> None:
    assert choose_profile({}, {}, pause_ns).spins == spins


@pytest.mark.parametrize(
    ("default", "other", "chosen"),
    [
        ([1.00, 1.01, 1.02], [0.91, 0.92, 0.93], DEFAULT),  # within what such times differ by
        ([1.00, 1.01, 1.02], [0.80, 0.81, 0.82], "other"),
        ([1.00, 1.01, 1.02], [0.80, 0.81, 1.30], "other"),  # others used a core for a moment
        ([1.00, 1.01, 1.02], [0.80, 0.95, 0.96], DEFAULT),  # one turn was faster: who knows
        ([2.00, 1.00, 3.00], [0.80, 2.10, 2.20], DEFAULT),
        ([2.00, 1.00, 3.00], [0.90, 0.91, 0.92], DEFAULT),
    ],
)
def test_noise_chooses_nothing(default: list[float], other: list[float], chosen: str) -> None:
    assert fastest({DEFAULT: default, "other": other}) == chosen


def test_nothing_measured_leaves_everything_as_it_is() -> None:
    assert choose_profile({}, {}, PAUSE_NS) == Profile()


def test_sizes_above_the_largest_measured_go_as_it_does() -> None:
    name = Trial(Kind.ALL_GATHER, SIZES[1], ()).name
    ways = choose_ways({name: {DEFAULT: [1.0], DIRECT: [0.5]}})
    assert [ways.way(Kind.ALL_GATHER, least) for least in CLASSES] == [
        TransportKind.SLOTS,
        TransportKind.DIRECT,
        TransportKind.DIRECT,
        TransportKind.DIRECT,
    ]


def test_what_matters_most_is_timed_first_and_names_differ() -> None:
    for ranks in (2, 4):
        trials = trials_for(ranks, 2)
        assert len({trial.name for trial in trials}) == len(trials)
        first = next(trial.kind for trial in trials if trial.nbytes)
        assert first is Kind.ALL_REDUCE
        assert all(trial.variants[0] in (DEFAULT, DIRECT) for trial in trials)
    assert not any(trial.topic == "sleep" for trial in trials_for(4, 8))
