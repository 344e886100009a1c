"""A profile is plain values, and says which plan is made; whatever it says, plans are right."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.ops.call import Kind
from distdbg.runtime.plan import Topology, make_plan
from distdbg.runtime.plan.problem import uniform_problem
from distdbg.runtime.plan.simulate import simulate
from distdbg.runtime.tuning.profile import (
    CLASSES,
    HALF_NBYTES,
    KINDS,
    NEVER,
    Profile,
    TransportKind,
    Ways,
    size_class,
)

MIB = 1 << 20
rows = st.lists(st.sampled_from(TransportKind), min_size=len(CLASSES), max_size=len(CLASSES)).map(
    tuple
)
any_ways = st.lists(rows, min_size=len(KINDS), max_size=len(KINDS)).map(lambda r: Ways(tuple(r)))


def topology(ways: Ways, hosts: tuple[tuple[int, ...], ...] = ()) -> Topology:
    return Topology(single_copy=True, slot_nbytes=512 << 10, ways=ways, hosts=hosts)


@given(any_ways, any_ways, st.integers(1, 100_000))
def test_a_profile_is_read_as_it_was_written(pairs: Ways, crowds: Ways, spins: int) -> None:
    profile = Profile(pairs=pairs, crowds=crowds, spins=spins, stream_nbytes=NEVER)
    assert Profile.from_plain(json.loads(json.dumps(profile.to_plain()))) == profile


@pytest.mark.parametrize(
    "change",
    [
        {"spins": 0},
        {"spins": "100"},
        {"spins": True},
        {"tile_nbytes": 1},
        {"tile_nbytes": 1 << 40},
        {"yield_ns": -1},
        {"pairs": {}},
        {"pairs": Ways().to_plain() | {"all_reduce": ["slots"]}},
        {"pairs": Ways().to_plain() | {"all_reduce": ["slots", "slots", "slots", "fast"]}},
        {"unknown": 1},
    ],
)
def test_what_nobody_wrote_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Profile.from_plain(Profile().to_plain() | change)


def test_sizes_have_classes() -> None:
    assert [size_class(n) for n in (0, 32_767, 32_768, MIB, 2 * MIB, 1 << 40)] == [
        -1,
        -1,
        0,
        1,
        2,
        3,
    ]


def test_kinds_without_ways_of_their_own_go_like_those_that_move_alike() -> None:
    ways = Ways().with_way(Kind.BROADCAST, 1, TransportKind.DIRECT)
    assert ways.way(Kind.SCATTER, MIB) is TransportKind.DIRECT
    assert ways.way(Kind.SCATTER, 1000) is TransportKind.SLOTS
    assert ways.way(Kind.GATHER, MIB) is ways.way(Kind.BARRIER, MIB) is TransportKind.SLOTS


def test_an_exchange_is_direct_from_a_size_on_or_never() -> None:
    assert Ways().exchanged_nbytes == 0
    assert Ways().with_way(Kind.ALL_TO_ALL, 0, TransportKind.DIRECT).exchanged_nbytes == 0
    assert (
        Ways().with_way(Kind.ALL_TO_ALL, 3, TransportKind.DIRECT).exchanged_nbytes == CLASSES[3] - 1
    )
    assert Ways.all(TransportKind.DIRECT).exchanged_nbytes == CLASSES[0] - 1


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        (Kind.ALL_REDUCE, "two_phase"),
        (Kind.ALL_GATHER, "direct"),
        (Kind.BROADCAST, "direct"),
        (Kind.REDUCE_SCATTER, "direct"),
        (Kind.GATHER, "direct"),
    ],
)
def test_a_way_decides_the_plan(kind: Kind, algorithm: str) -> None:
    problem = uniform_problem(kind, 0, 4, MIB, itemsize=4)
    direct = topology(Ways.all(TransportKind.DIRECT))
    assert make_plan(problem, direct).algorithm == algorithm
    assert make_plan(problem, topology(Ways())).algorithm != algorithm
    # Where ranks cannot read each other there is one way only.
    unable = replace(direct, single_copy=False)
    assert make_plan(problem, unable) == make_plan(problem, replace(unable, ways=Ways()))


def test_shorter_rounds_use_less_of_a_slot() -> None:
    problem = uniform_problem(Kind.ALL_GATHER, 0, 2, 4 * MIB, itemsize=4)
    halved = topology(Ways.all(TransportKind.HALF))
    assert make_plan(problem, halved).slot_nbytes == HALF_NBYTES
    small = replace(halved, slot_nbytes=4096)
    assert make_plan(problem, small).slot_nbytes == 4096


def test_between_hosts_rounds_stay_as_they_are() -> None:
    hosts = ((0, 1), (2, 3))
    problem = uniform_problem(Kind.ALL_REDUCE, 0, 4, 4 * MIB, itemsize=4)
    usual, halved = (topology(ways, hosts) for ways in (Ways(), Ways.all(TransportKind.HALF)))
    assert make_plan(problem, halved) == make_plan(problem, usual)


@settings(max_examples=25, deadline=None, database=None)
@given(
    any_ways,
    st.sampled_from([kind for kind in Kind if kind not in (Kind.SEND, Kind.RECV)]),
    st.integers(2, 5),
    st.sampled_from([40_000, 300_000, 2_000_000, 9_000_000]),
    st.booleans(),
)
def test_plans_of_any_ways_are_right(
    ways: Ways, kind: Kind, size: int, nbytes: int, two_hosts: bool
) -> None:
    hosts = (tuple(range(size - 1)), (size - 1,)) if two_hosts else ()
    problems = [uniform_problem(kind, rank, size, nbytes, itemsize=4) for rank in range(size)]
    on = topology(ways, hosts)
    assert simulate(problems, [make_plan(problem, on) for problem in problems], on) == []
