"""The engine against the oracle of `simulator`, which tries all sets of ranks."""

import os
from collections import Counter
from functools import reduce
from operator import or_
from random import Random

import pytest

from distdbg.diagnose.find.deadlock import find
from distdbg.diagnose.graph import find_deadlocks
from distdbg.diagnose.matching import match
from distdbg.diagnose.waits import find_waits
from tests.unit.diagnose.drawn_programs import draw_program
from tests.unit.diagnose.simulator import End, advance, bits_of, ranks_of, run, stir

QUICK = 3_000
#: Two of each of the rarest endings; `make stress` runs more than a hundred thousand.
SLOW = int(os.environ.get("STRESS_PROGRAMS", "6000"))
PART = 3_000


def judge(seed: int) -> str:
    """Compare engine and oracle; returns what became of the program."""
    random = Random(seed)
    end = run(draw_program(random), random)
    session = end.session()
    matched = match(session)
    waits = find_waits(session, matched)
    assert set(waits) == set(ranks_of(end.blocked))
    if not end.blocked:
        return "done" if end.gone == (1 << end.size) - 1 else "computes"
    deadlocks = find_deadlocks(waits, ranks_of(end.gone))
    assert bits_of(deadlocks.blocked) == end.largest_closed(errors_help=False)
    found = find(session, matched, waits)
    deadlocked = end.closed_sets(end.blocked, errors_help=True)
    if not deadlocked:
        assert found == []
        return "waits for who is gone" if deadlocks.blocked else "waits for who computes"
    cores = [bits_of(each.deadlocked) for each in found]
    for core in cores:  # closed, and no part of it is
        assert [each for each in deadlocked if each & core == each] == [core]
    union = reduce(or_, deadlocked)
    if all(len(waits[rank]) == 1 and not waits[rank][0].is_any for rank in ranks_of(union)):
        assert min(map(int.bit_count, cores)) == min(map(int.bit_count, deadlocked))
    reported = 0
    for each, core in zip(found, cores, strict=True):
        everybody = core | bits_of((*each.ranks, *each.victims))
        assert not reported & everybody
        reported |= everybody
        assert len(each.what) <= 120
    assert reported == union
    if len(found) > 1:
        return "deadlocks"
    return "cycle" if "cycle" in found[0].what else "deadlock"


def assert_true_before_the_end(seed: int) -> bool:
    """Whether there is a deadlock while others still move; whoever is in it never moves again."""
    random = Random(seed)
    end = End(draw_program(random))
    advance(end, random, most_rounds=random.randrange(1, 8))
    session = end.session()
    matched = match(session)
    waits = find_waits(session, matched)
    assert set(waits) == set(ranks_of(end.blocked))
    found = find(session, matched, waits)
    deadlocked = reduce(or_, end.closed_sets(end.blocked, errors_help=True), 0)
    reported = [rank for each in found for rank in (*each.ranks, *each.victims)]
    assert bits_of(reported) == deadlocked
    before = {rank: end.threads[rank][0].op for rank in reported}
    advance(end, random)
    for rank, op in before.items():
        assert end.threads[rank][0].op is op
    return bool(found)


def assert_true_in_a_blurred_picture(seed: int) -> bool:
    """Read one record after the other while the ranks run; whoever is in a deadlock then stays there."""
    random = Random(seed)
    end = End(draw_program(random))
    stir(end, random, random.randrange(60))
    logs = {}
    for rank in random.sample(range(end.size), end.size):
        logs[rank] = end.log(rank, is_slow=random.random() < 0.7)
        stir(end, random, random.randrange(12))
    session = end.session(logs)
    matched = match(session)
    waits = find_waits(session, matched)
    found = find(session, matched, waits)
    advance(end, random)
    for each in found:
        for rank in (*each.ranks, *each.victims):
            for edge in waits[rank]:
                assert edge.op is not None
                assert not end.ops[rank][edge.op.at].has_ended
    return bool(found)


@pytest.mark.parametrize("part", range(3))
def test_engine_and_oracle_agree_on_random_programs(part: int) -> None:
    count = QUICK // 3
    became = Counter(judge(seed) for seed in range(part * count, (part + 1) * count))
    for what in ("done", "computes", "waits for who is gone", "waits for who computes", "cycle"):
        assert became[what] > count / 50, became


@pytest.mark.parametrize("part", range(2))
def test_a_deadlock_is_one_for_ever_whenever_it_is_looked_for(part: int) -> None:
    count = QUICK // 4
    found = sum(assert_true_before_the_end(part * count + seed) for seed in range(count))
    assert found > count / 20


def test_records_read_one_after_the_other_make_no_deadlock() -> None:
    assert sum(map(assert_true_in_a_blurred_picture, range(QUICK // 3))) > QUICK / 60


@pytest.mark.slow
def test_very_many_blurred_pictures_make_no_deadlock() -> None:
    assert sum(map(assert_true_in_a_blurred_picture, range(QUICK, QUICK + SLOW // 4))) > SLOW / 80


@pytest.mark.slow
def test_a_deadlock_is_one_for_ever_in_very_many_programs() -> None:
    assert sum(map(assert_true_before_the_end, range(QUICK, QUICK + SLOW // 6))) > SLOW / 120


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLOW // PART))
def test_engine_and_oracle_agree_on_very_many_programs(part: int) -> None:
    became = Counter(judge(QUICK + seed) for seed in range(part * PART, (part + 1) * PART))
    assert became["deadlock"] > PART / 300, became
    assert became["deadlocks"] > PART / 3000, became
