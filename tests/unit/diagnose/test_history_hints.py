"""What the calls before a mismatch or a deadlock show of its cause."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from distdbg.render.where import groups_of_deadlock
from tests.support.session_builder import SessionBuilder

CLIP = "/job/x.py:19 (clip) < /job/x.py:31 (train) < /job/x.py:46 (main)"
AVERAGE = "/job/x.py:25 (average) < /job/x.py:32 (train) < /job/x.py:46 (main)"
TRAIN = "/job/x.py:34 (train) < /job/x.py:57 (main)"
VALIDATE = "/job/x.py:44 (validate) < /job/x.py:58 (main)"


def mismatch(
    calls: Mapping[int, Sequence[str]], odd: int, *, dtypes: Sequence[str] = ("float64", "float64")
) -> Finding:
    """Each rank calls these lines; the last calls of all ranks differ, that of `odd` from all others."""
    build = SessionBuilder(len(calls))
    what = f"all_reduce #{len(calls[0])} on group 'world' differs between ranks"
    facts = {
        "type": "MismatchError",
        "what": what,
        "ranks": [odd],
        "hint": "see what sets the size",
    }
    for rank, sites in calls.items():
        for at, site in enumerate(sites, 1):
            is_last = at == len(sites)
            is_odd = is_last and rank == odd
            build.op(
                rank, "all_reduce", at_s=at, started_s=at + 0.1, ended_s=at + 0.2, site=site,
                inputs=[(1,) if is_odd else (8,)], dtype=dtypes[is_odd],
                error=json.dumps(facts) if is_last else "",
                status=Status.MISMATCH if is_last else Status.OK,
            )  # fmt: skip
        build.exit(rank, Exit.RAISED, at_s=30, what=f"MismatchError: {what}")
        build.end(rank, at_s=30.1, cause="exited", exit_code=1)
    root = diagnose(build.session).root
    assert root is not None
    return root


def says(finding: Finding, text: str) -> bool:
    return any(text in fact.text for fact in finding.evidence)


FIRST = "rank 1 called all_reduce at x.py:19 (clip) for the first time in this run; no other"


def test_a_line_that_one_rank_alone_has_ever_called_stands_under_a_condition() -> None:
    root = mismatch({0: [AVERAGE] * 5, 1: [AVERAGE] * 4 + [CLIP], 2: [AVERAGE] * 5}, 1)
    assert says(root, FIRST)
    assert root.advice.startswith("see the condition under which rank 1 comes to x.py:19 (clip)")


def test_a_line_that_others_called_before_is_no_first_one() -> None:
    others = [AVERAGE, CLIP, AVERAGE, AVERAGE, AVERAGE]
    root = mismatch({0: others, 1: [*others[:4], CLIP], 2: others}, 1)
    assert not says(root, "for the first time")
    assert root.advice == "see what sets the size"


def test_a_call_further_down_may_be_one_too_many_as_well_as_one_skipped() -> None:
    step = "/job/x.py:32 (train) < /job/x.py:49 (main)"
    journal = "/job/j.py:33 (over) < /job/x.py:35 (train) < /job/x.py:49 (main)"
    root = mismatch({0: [*[step] * 8, journal], 1: [step] * 9, 2: [step] * 9}, 0)
    assert root.what == (
        "rank 0 went on to x.py:35 after 8 calls at x.py:32, where ranks 1-2 began one more"
    )
    assert root.advice == (
        "see why rank 0 makes the call at x.py:35 and ranks 1-2 do not, or what skipped one at x.py:32"
    )


def test_a_rank_that_left_a_loop_before_the_others_is_told_with_its_count() -> None:
    root = mismatch({0: [TRAIN] * 11, 1: [TRAIN] * 11, 2: [*[TRAIN] * 10, VALIDATE]}, 2)
    assert root.what == (
        "rank 2 left train() for x.py:58 after 10 calls at x.py:34; ranks 0-1 began one more"
    )
    assert (root.ranks, root.victims) == ((2,), (0, 1))
    assert "fewer" in root.advice
    assert says(root, "differs between ranks")


@pytest.mark.parametrize(
    "odd",
    [
        [*[TRAIN] * 9, VALIDATE, VALIDATE],  # it had left before
        [*[TRAIN] * 10, "/job/x.py:9 (warm) < /job/x.py:50 (main)"],  # a line before the loop
    ],
)
def test_what_does_not_come_behind_the_loop_is_no_end_of_it(odd: list[str]) -> None:
    assert "left train()" not in mismatch({0: [TRAIN] * 11, 1: [TRAIN] * 11, 2: odd}, 2).what


def test_another_dtype_and_shape_at_one_line_is_another_array() -> None:
    line = "/job/m.py:48 (reduce) < /job/m.py:47 (validate)"
    calls = {rank: [AVERAGE, AVERAGE, line] for rank in range(3)}
    root = mismatch(calls, 0, dtypes=("float64", "int64"))
    assert root.advice.startswith("another array on rank 0: see whether the order")
    assert says(
        root, "ranks 0-2 called all_reduce at m.py:48 (reduce) for the first time in this run"
    )
    assert mismatch(calls, 0).advice == "see what sets the size"


def pipeline(sent: Sequence[int]) -> Finding:
    """Rank 1 hands on what rank 0 sends; the last of `sent` has the tag of no recv."""
    build = SessionBuilder(3)
    for at, tag in enumerate(sent):
        is_last = at == len(sent) - 1
        build.op(0, "send", peer=1, tag=at + 1, at_s=at, ended_s=at + 0.1, site="/j/p.py:30 (on)")
        build.op(1, "recv", peer=0, source=0, tag=at + 1, at_s=at, ended_s=at + 0.1,
                 site="/j/p.py:26 (get)")  # fmt: skip
        end_s = None if is_last else at + 0.3
        build.op(1, "send", peer=2, tag=tag, at_s=at + 0.2, ended_s=end_s, site="/j/p.py:30 (on)")
        build.op(2, "recv", peer=1, source=1, tag=at + 1, at_s=at + 0.2, ended_s=end_s,
                 site="/j/p.py:26 (get)")  # fmt: skip
    root = diagnose(build.session).root
    assert root is not None
    return root


def test_who_got_a_tag_and_sent_another_one_is_the_cause() -> None:
    root = pipeline([1, 2, 3, 5])
    assert root.ranks == (1,)
    assert root.what.endswith(
        "rank 1 sent to rank 2 (tag 5) at p.py:30; rank 2 waits for tag 4 at p.py:26"
    )
    assert says(root, "it received tags 1-4 and sent tags 1-3,5")
    assert root.advice == "see how rank 1 makes the tag at p.py:30 (on): it got tag 4 and sent 5"


def test_without_messages_that_were_handed_on_before_either_tag_may_be_wrong() -> None:
    assert pipeline([5]).ranks == (1, 2)


def test_the_rank_whose_group_overlaps_those_of_the_others_at_a_line_is_the_cause() -> None:
    build = SessionBuilder(4)
    for label, ranks in (("a0", [0, 2]), ("a1", [1, 3]), ("b1", [2, 3])):
        build.group(label, ranks)
    line = "/job/x.py:42 (reduce) < /job/x.py:61 (main)"
    for rank in (0, 2):
        build.op(rank, "all_reduce", group="a0", at_s=1, ended_s=1.1, site=line)
        build.op(rank, "all_reduce", at_s=2, site="/job/x.py:62 (main)")
    build.op(1, "all_reduce", group="a1", at_s=1, site=line)
    build.op(3, "all_reduce", group="b1", at_s=1, site=line)
    root = diagnose(build.session).root
    assert root is not None
    assert root.what == (
        "ranks 1-3 are deadlocked: at x.py:42 rank 3 called all_reduce on group 'b1', rank 1 on group 'a1'"
    )
    assert (root.ranks, root.victims) == ((3,), (0, 1, 2))
    assert "rank 3 takes another one" in root.advice
    assert says(root, "ranks 0,2 on 'a0'")
    shown = [label for label, _ in groups_of_deadlock(build.session, root)]
    assert shown == ["world", "a1", "b1"]


def test_in_a_program_that_has_just_begun_every_line_is_called_for_the_first_time() -> None:
    root = mismatch({0: [TRAIN, AVERAGE], 1: [TRAIN, CLIP], 2: [TRAIN, AVERAGE]}, 1)
    assert not says(root, FIRST)


OBTAIN = "/job/x.py:28 (obtain) < /job/x.py:{} (main)"


def test_a_call_that_was_skipped_earlier_shows_by_where_the_next_ones_were_called_from() -> None:
    all_calls = [TRAIN, OBTAIN.format(31), OBTAIN.format(32), OBTAIN.format(33)]
    others = all_calls
    root = mismatch({0: others, 1: [TRAIN, *all_calls[2:], CLIP], 2: others}, 1)
    assert root.what == (
        "rank 1 skipped all_reduce #2 on group 'world' at x.py:28, called from x.py:31; "
        "noticed at #4"
    )
    assert says(root, "#2 of rank 1 comes from x.py:32 (main), that of rank 0 from x.py:31 (main)")
    assert root.advice.startswith("see why rank 1 did not make that call")


def test_a_call_that_one_rank_alone_made_earlier_is_the_cause() -> None:
    others = [TRAIN, AVERAGE, OBTAIN.format(31), OBTAIN.format(32)]
    root = mismatch({0: others, 1: [TRAIN, CLIP, *others[1:3]], 2: others}, 1)
    assert root.what == "rank 1 made one all_reduce more, at x.py:19 (#2); noticed at #4"
    assert says(
        root, "and the others never did: from there on rank 1 makes the calls that rank 0 made"
    )
    assert root.advice.startswith("see why rank 1 makes that call")
    [extra] = [fact for fact in root.evidence if fact.is_extra]
    assert extra.op is not None
    assert (extra.op.rank, extra.op.at) == (1, 1)


def test_a_call_that_the_others_make_too_is_no_extra_one() -> None:
    """In a loop of two calls any shift looks like one call more, or one fewer."""
    others = [TRAIN, AVERAGE, TRAIN, AVERAGE]
    root = mismatch({0: others, 1: [TRAIN, AVERAGE, AVERAGE, TRAIN], 2: others}, 1)
    assert "more" not in root.what


def test_a_line_that_one_rank_called_once_more_while_the_others_went_on_is_the_cause() -> None:
    others = [TRAIN, AVERAGE, TRAIN, AVERAGE, VALIDATE]
    root = mismatch({0: others, 1: [TRAIN, AVERAGE, TRAIN, TRAIN, AVERAGE], 2: others}, 1)
    assert "times" not in root.what  # which of two lines was one too many does not show
    others = [TRAIN, TRAIN, TRAIN, VALIDATE]
    root = mismatch({0: others, 1: [TRAIN] * 4, 2: others}, 1)
    assert root.what == (
        "rank 1 called all_reduce at x.py:34 4 times, ranks 0,2 3 times, and went on to x.py:44"
    )
    assert says(root, "all_reduce #4 on group 'world' differs between ranks")
    assert root.advice.startswith("see what repeats that call on rank 1")


@pytest.mark.parametrize(
    ("others", "odd"),
    [
        pytest.param([TRAIN, AVERAGE] * 2, [TRAIN, AVERAGE, AVERAGE, TRAIN], id="out of order"),
        pytest.param(
            [TRAIN, VALIDATE, TRAIN, VALIDATE], [TRAIN, VALIDATE, TRAIN, TRAIN], id="a loop"
        ),
    ],
)
def test_a_line_that_all_come_to_again_is_not_one_too_many(
    others: list[str], odd: list[str]
) -> None:
    assert " times" not in mismatch({0: others, 1: odd, 2: others}, 1).what


def test_calls_from_other_lines_that_are_not_shifted_are_no_skipped_call() -> None:
    """An if and else by the rank, as in many right programs."""
    others = [OBTAIN.format(31), OBTAIN.format(33), AVERAGE]
    root = mismatch({0: others, 1: [OBTAIN.format(41), OBTAIN.format(43), CLIP], 2: others}, 1)
    assert "skipped" not in root.what


@pytest.mark.parametrize("shift", [-2, 2])
def test_an_array_that_others_give_some_calls_off_is_another_one_not_one_of_another_size(
    shift: int,
) -> None:
    build = SessionBuilder(3)
    what = "all_reduce #3 on group 'world' differs between ranks"
    facts = {"type": "MismatchError", "what": what, "ranks": [1], "hint": "see what sets the size"}
    sizes = {1: 16, 2: 8, 3: 1, 4: 8, 5: 4}
    for rank in range(3):
        for seq in range(1, 4 if rank == 1 else 6):
            is_odd = rank == 1 and seq == 3
            size = sizes[seq + shift] if is_odd else sizes[seq]
            failed = {"status": Status.MISMATCH, "error": json.dumps(facts)} if seq >= 3 else {}
            build.op(rank, "all_reduce", seq=seq, at_s=seq, ended_s=seq + 0.1, site=TRAIN,
                     inputs=[(size,)], **failed)  # fmt: skip
        build.exit(rank, Exit.RAISED, at_s=30, what=f"MismatchError: {what}")
        build.end(rank, at_s=30.1, cause="exited", exit_code=1)
    root = diagnose(build.session).root
    assert root is not None
    assert "the order or the number of the calls" in root.advice


def test_calls_in_another_order_or_by_turns_are_no_skipped_call() -> None:
    one, two, three = (OBTAIN.format(line) for line in (31, 32, 33))
    swapped = mismatch({0: [TRAIN, one, two], 1: [TRAIN, two, one], 2: [TRAIN, one, two]}, 1)
    assert "skipped" not in swapped.what
    turns = mismatch(
        {0: [one, two] * 2 + [one], 1: [two, one] * 2 + [three], 2: [one, two] * 2 + [one]}, 1
    )
    assert "skipped" not in turns.what


def test_a_root_that_others_had_some_calls_before_is_no_other_array() -> None:
    build = SessionBuilder(3)
    what = "broadcast #4 on group 'world' differs between ranks"
    facts = {
        "type": "MismatchError",
        "what": what,
        "ranks": [0],
        "hint": "see where src comes from",
    }
    for rank in range(3):
        for seq in (1, 2, 3, 4):
            root = 0 if seq < 4 or rank == 0 else 2
            failed = {"status": Status.MISMATCH, "error": json.dumps(facts)} if seq == 4 else {}
            build.op(rank, "broadcast", seq=seq, at_s=seq, ended_s=seq + 0.1, site=TRAIN, root=root,
                     inputs=[(8,)], **failed)  # fmt: skip
        build.exit(rank, Exit.RAISED, at_s=30, what=f"MismatchError: {what}")
        build.end(rank, at_s=30.1, cause="exited", exit_code=1)
    root = diagnose(build.session).root
    assert root is not None
    assert root.advice == "see where src comes from"


@pytest.mark.parametrize("at_one_time", [True, False])
def test_a_mismatch_of_two_threads_on_one_group_is_told_so(at_one_time: bool) -> None:
    build = SessionBuilder(2)
    what = "op #2 on group 'world' differs between ranks"
    facts = json.dumps({"type": "MismatchError", "what": what, "ranks": [1], "hint": "compare"})
    for rank in range(2):
        calls = [("barrier", 7), ("all_reduce", 8)] if rank else [("all_reduce", 8), ("barrier", 7)]
        build.op(rank, "all_reduce", at_s=0, ended_s=0.5, thread=8, site=TRAIN)
        for at, (kind, thread) in enumerate(calls, 1):
            begin = 1.0 if at_one_time else float(at)
            build.op(rank, kind, at_s=begin, ended_s=begin + 0.5, thread=thread, site=f"x.py:{thread} (f)",
                     status=Status.MISMATCH, error=facts)  # fmt: skip
        build.exit(rank, Exit.RAISED, at_s=30, what=f"MismatchError: {what}")
    root = diagnose(build.session).root
    assert root is not None
    reported = "two threads of ranks 0-1 issue ops on group 'world' at one time: "
    assert says(root, reported) is at_one_time
    assert ("a group of its own" in root.advice) is at_one_time


@pytest.mark.parametrize("thread", [7, 8])
def test_two_threads_whose_lines_differ_by_chance_are_told_before_a_call_that_was_left_out(
    thread: int,
) -> None:
    build = SessionBuilder(3)
    what = "all_reduce #7 on group 'world' differs between ranks"
    facts = json.dumps({"type": "MismatchError", "what": what, "ranks": [2], "hint": "compare"})

    def call(rank: int, seq: int, at: str, **facts: Any) -> None:
        site, size, by = "/job/stats.py:33 (report)", 1, thread
        if at == "main":
            site, size, by = "/job/x.py:21 (main)", 96, 7
        build.op(rank, "all_reduce", seq=seq, at_s=seq, ended_s=seq + 1.5, site=site, thread=by,
                 inputs=[(size,)], **facts)  # fmt: skip

    for rank in range(3):
        for seq in range(1, 7):
            call(rank, seq, "main" if seq % 3 else "thread")
        call(rank, 7, "thread" if rank == 2 else "main", status=Status.MISMATCH, error=facts)
        build.exit(rank, Exit.RAISED, at_s=30, what=f"MismatchError: {what}")
        build.end(rank, at_s=30.1, cause="exited", exit_code=1)
    verdict = diagnose(build.session)
    root = verdict.root
    assert root is not None
    if thread == 7:
        assert root.ranks == (2,)
        assert "a group of its own" not in root.advice
    else:
        assert (root.ranks, root.what) == ((), what)
        assert root.advice.startswith("give each thread a group of its own")
        assert says(root, "two threads of ranks 0-2 issue ops on group 'world' at one time: ")
        assert not any("majority" in lack for lack in verdict.lacks)


def test_where_arrays_of_several_sizes_come_to_a_line_it_may_be_another_one() -> None:
    build = SessionBuilder(3)
    what = "all_reduce #20 on group 'world' differs between ranks"
    facts = {"type": "MismatchError", "what": what, "ranks": [1], "hint": "see what sets the size"}
    for rank in range(3):
        for seq in range(1, 21):
            size = 999 if rank == 1 and seq == 20 else 8 * (seq % 3 + 1)
            failed = {"status": Status.MISMATCH, "error": json.dumps(facts)} if seq == 20 else {}
            build.op(rank, "all_reduce", seq=seq, at_s=seq, ended_s=seq + 0.1, site=TRAIN,
                     inputs=[(size,)], **failed)  # fmt: skip
        build.exit(rank, Exit.RAISED, at_s=30, what=f"MismatchError: {what}")
        build.end(rank, at_s=30.1, cause="exited", exit_code=1)
    root = diagnose(build.session).root
    assert root is not None
    assert root.advice.startswith("arrays of several sizes come to that line")
