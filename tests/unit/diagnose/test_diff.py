"""What differs between two runs, and that what only clocks do is no difference."""

from __future__ import annotations

from distdbg.diagnose.diff import Difference, compare
from distdbg.diagnose.op_fields import SessionView
from tests.support.session_builder import SessionBuilder

STEP = "/a/train.py:80 (step)"


def steps(
    *, took_s: float = 0.1, count: int = 10, site: str = STEP, world_size: int = 2
) -> SessionBuilder:
    build = SessionBuilder(world_size=world_size)
    for rank in range(world_size):
        for index in range(count):
            at_s = float(index)
            build.op(rank, "all_reduce", at_s=at_s, ended_s=at_s + took_s, site=site, nbytes=8)
    return build


def diff(before: SessionBuilder, after: SessionBuilder, threshold: float = 0.2) -> Difference:
    return compare(SessionView(before.session), SessionView(after.session), threshold=threshold)


def test_a_run_does_what_it_does() -> None:
    found = diff(steps(), steps(took_s=0.11))
    assert not found
    assert not found.notes


def test_what_got_slower_and_what_got_faster_is_told_apart() -> None:
    found = diff(steps(took_s=0.1), steps(took_s=0.2))
    [change] = found.slower
    assert (change.call.kind, change.call.group, change.call.nbytes) == ("all_reduce", "world", 8)
    assert change.call.site == "train.py:80 (step)"
    assert change.factor is not None
    assert round(change.factor, 3) == 2.0
    assert change.before is not None
    assert change.before.count == 20
    assert not found.faster
    [change] = diff(steps(took_s=0.2), steps(took_s=0.1)).faster
    assert change.after is not None
    assert change.after.p50_ns == 100_000_000


def test_the_threshold_decides() -> None:
    assert diff(steps(took_s=0.1), steps(took_s=0.115), threshold=0.1).slower
    assert not diff(steps(took_s=0.1), steps(took_s=0.115), threshold=0.2)


def test_microseconds_and_single_ops_are_no_difference() -> None:
    assert not diff(steps(took_s=1e-6), steps(took_s=9e-6))
    assert not diff(steps(took_s=0.1, count=1), steps(took_s=0.9, count=1))


def test_checkouts_in_other_folders_are_compared() -> None:
    assert not diff(steps(), steps(site="/b/c/train.py:80 (step)"))


def test_calls_of_one_run_only_are_new_or_gone() -> None:
    found = diff(steps(), steps(site="train.py:99 (other)"))
    assert [change.call.site for change in found.new] == ["train.py:99 (other)"]
    assert [change.call.site for change in found.gone] == ["train.py:80 (step)"]


def test_counts_are_compared_where_nothing_was_overwritten() -> None:
    found = diff(steps(count=10), steps(count=12))
    [change] = found.counts
    assert change.before is not None
    assert change.after is not None
    assert (change.before.count, change.after.count) == (20, 24)
    after = steps(count=12)
    after.session.ranks[0].lost["ops"] = 5
    found = diff(steps(count=10), after)
    assert not found
    assert found.notes == ("some records have lost their oldest ops, so counts are not compared",)


def test_the_first_call_that_changed_its_place_is_told_once_for_all_ranks() -> None:
    runs = []
    for kinds in (("all_reduce", "broadcast", "barrier"), ("all_reduce", "barrier", "broadcast")):
        build = SessionBuilder(world_size=3)
        for rank in range(3):
            for index, kind in enumerate(kinds if rank else ("all_reduce",)):
                at_s = float(index)
                build.op(rank, kind, at_s=at_s, ended_s=at_s, site=f"train.py:{index} (step)")
        runs.append(build)
    [order] = diff(runs[0], runs[1]).order
    assert (order.ranks, order.place) == ((1, 2), 2)
    assert order.before == "broadcast #2 on group 'world' at train.py:1 (step)"
    assert order.after == "barrier #2 on group 'world' at train.py:1 (step)"


def test_rings_that_came_round_are_compared_where_both_have_something() -> None:
    before, after = steps(count=10), steps(count=10)
    log = after.session.ranks[0]
    for column in (log.ops.number,):
        for at in range(10):
            column[at] += 4
    log.lost["ops"] = 4
    assert not diff(before, after).order


def test_another_number_of_ranks_is_a_note() -> None:
    found = diff(steps(world_size=2), steps(world_size=3))
    assert "the runs have 2 and 3 ranks" in found.notes
