from itertools import chain, combinations
from random import Random

import pytest

from distdbg.diagnose.graph import UnresolvableWaits, WaitFor, find_deadlocks

Waits = dict[int, list[WaitFor]]


def test_a_cycle_is_a_core_in_its_order() -> None:
    deadlocks = find_deadlocks(
        {"a": [WaitFor(("c",))], "b": [WaitFor(("a",))], "c": [WaitFor(("b",))]}
    )
    assert deadlocks.cores == (("a", "c", "b"),)
    assert deadlocks.cycles == (True,)


def test_the_shortest_of_many_cycles_is_the_core() -> None:
    waits: Waits = {i: [WaitFor(((i + 1) % 50,))] for i in range(50)}
    waits[30] = [WaitFor((31, 28))]
    deadlocks = find_deadlocks(waits)
    assert deadlocks.cores == ((28, 29, 30),)
    assert len(deadlocks.victims[0]) == 47


def test_who_waits_for_who_can_move_can_move() -> None:
    assert find_deadlocks({0: [WaitFor((1,))], 1: [WaitFor((2,))]}) == UnresolvableWaits(
        (), (), (), (), ()
    )


def test_who_waits_for_who_is_gone_is_blocked_but_not_knotted() -> None:
    deadlocks = find_deadlocks({0: [WaitFor((1, 2))], 1: [WaitFor((0,))]}, gone=[2])
    assert deadlocks.blocked == (0, 1)
    assert deadlocks.deadlocked == ()


def test_who_is_gone_is_no_way_out() -> None:
    deadlocks = find_deadlocks({0: [WaitFor((1, 2), True)], 1: [WaitFor((0,))]}, gone=[2])
    assert deadlocks.cores == ((0, 1),)


def test_a_knot_has_all_ways_out_in_it() -> None:
    deadlocks = find_deadlocks({0: [WaitFor((1, 2), True)], 1: [WaitFor((0,))], 2: [WaitFor((0,))]})
    assert deadlocks.cores == ((0, 1, 2),)
    assert deadlocks.cycles == (False,)


def test_a_knot_leaves_out_what_it_does_not_need() -> None:
    waits = {
        0: [WaitFor((1, 2), True)],
        1: [WaitFor((0, 3))],
        2: [WaitFor((0,))],
        3: [WaitFor((0, 1))],
    }
    deadlocks = find_deadlocks(waits)
    assert deadlocks.cores in (((0, 1, 2),), ((1, 3),))


def test_two_threads_are_two_ways_on() -> None:
    waits = {0: [WaitFor((1,)), WaitFor((2,))], 1: [WaitFor((0,))]}
    assert find_deadlocks(waits).cores == ()
    assert find_deadlocks({**waits, 2: [WaitFor((0,))]}).cores == ((0, 1, 2),)


def test_independent_cores_have_their_own_victims() -> None:
    waits = {
        0: [WaitFor((1,))], 1: [WaitFor((0,))], 2: [WaitFor((0,))],
        3: [WaitFor((4,))], 4: [WaitFor((3,))], 5: [WaitFor((6,))], 6: [WaitFor((4,))],
    }  # fmt: skip
    deadlocks = find_deadlocks(waits)
    assert deadlocks.cores == ((0, 1), (3, 4))
    assert deadlocks.victims == ((2,), (5, 6))


def test_a_core_that_waits_for_another_is_one_of_its_own() -> None:
    waits = {0: [WaitFor((1, 2))], 1: [WaitFor((0,))], 2: [WaitFor((3,))], 3: [WaitFor((2,))]}
    assert find_deadlocks(waits).cores == ((0, 1), (2, 3))


def test_large_collectives_share_what_they_wait_for() -> None:
    ones, others = tuple(range(4096)), tuple(range(4096, 8192))
    waits = {i: [WaitFor(others)] for i in ones} | {i: [WaitFor(ones)] for i in others}
    deadlocks = find_deadlocks(waits)
    assert deadlocks.cores == ((0, 4096),)
    assert len(deadlocks.victims[0]) == 8190


def test_a_long_chain_needs_no_recursion() -> None:
    count = 5_000
    deadlocks = find_deadlocks(
        {i: [WaitFor((i + 1 if i < count - 1 else i - 1,))] for i in range(count)}
    )
    assert deadlocks.cores == ((count - 2, count - 1),)
    assert (
        len(find_deadlocks({i: [WaitFor(((i + 1) % count,))] for i in range(count)}).cores[0])
        == count
    )


# -------------------------------------------------------------------------- against all subsets


def is_closed(waits: Waits, gone: set[int], nodes: set[int]) -> bool:
    """Whether each wait of each of them is for one of them, or for nobody else alive."""
    for node in nodes:
        for wait in waits[node]:
            on = set(wait.on)
            if wait.is_any and not (on & nodes and on <= nodes | gone):
                return False
            if not wait.is_any and (on & gone or not on & nodes):
                return False
    return True


def draw(random: Random) -> tuple[Waits, set[int]]:
    size = random.randrange(1, 8)
    nodes = range(size)
    waits: Waits = {}
    shared = [tuple(random.sample(nodes, random.randint(0, size))) for _ in range(3)]
    for node in nodes:
        if random.random() < 0.85:
            waits[node] = [
                WaitFor(
                    random.choice((*shared, tuple(random.sample(nodes, min(size, 2))))),
                    random.random() < 0.4,
                )
                for _ in range(random.choice((1, 1, 1, 2)))
            ]
    return waits, {node for node in nodes if node not in waits and random.random() < 0.5}


def assert_right(waits: Waits, gone: set[int]) -> None:
    deadlocks = find_deadlocks(waits, gone)
    nodes = sorted(waits)
    subsets = map(
        set, chain.from_iterable(combinations(nodes, n) for n in range(1, len(nodes) + 1))
    )
    closed = [subset for subset in subsets if is_closed(waits, gone, subset)]
    assert set(deadlocks.deadlocked) == set().union(*closed)
    assert bool(deadlocks.cores) == bool(closed)
    for core in map(set, deadlocks.cores):
        assert [each for each in closed if each <= core] == [core]
    reported = [node for part in (*deadlocks.cores, *deadlocks.victims) for node in part]
    assert sorted(reported) == sorted(deadlocks.deadlocked)


@pytest.mark.parametrize("part", range(2))
def test_knots_are_what_trying_all_subsets_finds(part: int) -> None:
    for seed in range(part * 1000, (part + 1) * 1000):
        assert_right(*draw(Random(seed)))


@pytest.mark.slow
def test_knots_are_what_trying_all_subsets_finds_at_length() -> None:
    for seed in range(2000, 10_000):
        assert_right(*draw(Random(seed)))
