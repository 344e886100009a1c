"""One error from the ranks' descriptions: majority and outliers, lines, and bounds on the text."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from distdbg.check.explain import describe as describe_shape
from distdbg.check.explain import explain_mismatch
from distdbg.errors import MismatchError


def describe(
    facts: dict[str, Any],
    function: str,
    call_site: str,
    sends: list[int] | None = None,
    expects: list[int] | None = None,
    previous: str | None = None,
) -> bytes:
    """As native code completes what all calls of one shape say."""
    call = json.dumps({"call_site": call_site, "previous": previous})
    return describe_shape(facts, function, sends, expects) + b", " + call.encode()[1:]


def words(
    kind: str = "all_reduce", line: int = 8, previous: str | None = None, **facts: Any
) -> bytes:
    facts = {"kind": kind, **facts}
    if kind != "barrier":
        facts.setdefault("dtype", "float32")
        facts.setdefault("shape", [4])
    return describe(
        facts, facts.get("form", kind), f"/home/me/train.py:{line} (step)", previous=previous
    )


def explain(*descriptions: bytes, this_rank: int = 0) -> MismatchError:
    return explain_mismatch(
        descriptions, group="dp", seq=42, global_ranks=range(len(descriptions)), this_rank=this_rank
    )


def test_the_whole_text_of_an_outlier() -> None:
    calls = [words(), words(), words(shape=[3], line=9), words()]
    assert str(explain(*calls)) == (
        "all_reduce #42 on group 'dp' differs between ranks: "
        "float32[4] on ranks 0-1,3, float32[3] on rank 2\n"
        "  ranks 0-1,3 called all_reduce at train.py:8 (step)\n"
        "  rank 2 called all_reduce at train.py:9 (step)\n"
        "  no data was exchanged; the group is still usable\n"
        "  hint: the calls are at different lines: "
        "see which branch was taken on rank 2, then the sizes"
    )


def test_one_line_that_all_ranks_called_is_told_once() -> None:
    error = explain(words(), words(), words(shape=[3]), words())
    assert error.details[0] == "ranks 0-3 called all_reduce at train.py:8 (step)"
    assert sum("called" in line for line in error.details) == 1


def test_the_text_is_the_same_on_every_rank_but_for_the_line_about_this_rank() -> None:
    calls = [words(), words(), words(shape=[3])]
    texts = [str(explain(*calls, this_rank=rank)).splitlines() for rank in range(3)]
    assert texts[0] == texts[1]
    assert [line for line in texts[2] if "this rank" not in line] == texts[0]
    assert "  this rank is the one that differs" in texts[2]


def test_facts_are_on_the_error_and_survive_pickling() -> None:
    error = explain(
        words(), words(), words(shape=[3], line=9, previous="barrier #41 at a.py:1 (f)")
    )
    assert (error.kind, error.seq, error.group, error.ranks) == ("all_reduce", 42, "dp", [2])
    assert [(side["what"], side["ranks"]) for side in error.sides] == [
        ("float32[4]", [0, 1]),
        ("float32[3]", [2]),
    ]
    assert error.sides[1]["sites"] == [
        {"function": "all_reduce", "call_site": "train.py:9 (step)", "ranks": [2]}
    ]
    assert error.sides[1]["previous"] == [{"op": "barrier #41 at a.py:1 (f)", "ranks": [2]}]
    assert pickle.loads(pickle.dumps(error)).sides == error.sides
    assert json.loads(json.dumps(error.sides)) == error.sides


def test_a_tie_has_no_odd_ranks_and_says_so() -> None:
    error = explain(words(), words(shape=[3]))
    assert error.ranks == [0, 1]
    assert "no side has a majority" in str(error)
    assert "odd" not in str(error)


def test_two_unequal_outliers_beside_a_majority_are_both_odd() -> None:
    others = (words(shape=[3]), words(shape=[5]))
    error = explain(words(), words(), words(), *others, this_rank=4)
    assert error.ranks == [3, 4]
    assert "this rank is one of those that differ: 3-4" in str(error)
    # Two of four are the most that agree, and no majority: any of the three may be right.
    error = explain(words(), words(), *others, this_rank=3)
    assert error.ranks == [0, 1, 2, 3]
    assert "no side has a majority" in str(error)


def test_of_a_broadcast_those_differ_who_have_no_room_for_what_is_sent() -> None:
    empty = words("broadcast", root=0, shape=[0])
    error = explain(words("broadcast", root=0), empty, empty, empty)
    assert error.ranks == [1, 2, 3]
    # One that sends another array than all others expect has the wrong one.
    other = words("broadcast", root=0, shape=[6, 16])
    assert explain(words("broadcast", root=0), other, other, other).ranks == [0]
    assert explain(words("broadcast", root=0), other).ranks == [1]
    # Where the root differs as well there is no such array.
    error = explain(words("broadcast", root=1), *[words("broadcast", root=0)] * 3)
    assert error.ranks == [0]


def test_where_kinds_differ_the_op_before_is_told() -> None:
    before = "all_reduce #41 at train.py:80 (step)"
    error = explain(
        words(previous=before),
        words("barrier", previous="broadcast #41 at train.py:70 (step)"),
        words(previous=before),
    )
    lines = str(error).splitlines()
    assert lines[0] == (
        "op #42 on group 'dp' differs between ranks: "
        "all_reduce float32[4] on ranks 0,2, barrier on rank 1"
    )
    assert f"  before it, ranks 0,2 called {before}" in lines
    assert "  before it, rank 1 called broadcast #41 at train.py:70 (step)" in lines


def test_where_only_sizes_differ_the_op_before_is_left_out() -> None:
    error = explain(words(previous="x"), words(shape=[3], previous="y"), words(previous="x"))
    assert "before it" not in str(error)


def test_where_sizes_differ_at_lines_apart_the_order_may_have_slipped() -> None:
    before = "all_reduce #41 at train.py:8 (step)"
    one = words(previous=before)
    error = explain(one, words(line=9, shape=[3], previous=before), one)
    assert f"  before it, ranks 0-2 called {before}" in str(error).splitlines()


def test_an_object_form_is_called_by_its_name() -> None:
    sizes = {"dtype": "int64", "shape": [1]}
    error = explain(
        words("all_gather", form="all_gather_object", **sizes),
        words("all_gather", **sizes),
        words("all_gather", form="all_gather_object", **sizes),
    )
    assert error.what.endswith("all_gather_object on ranks 0,2, all_gather on rank 1")
    assert "rank 1 called all_gather at" in str(error)


def test_object_lists_of_two_lengths_are_told_in_objects() -> None:
    both = [words("broadcast", form="broadcast_object_list", objects=n) for n in (3, 3, 2)]
    assert "broadcast_object_list #42" in explain(*both).what
    assert explain(*both).what.endswith("3 objects on ranks 0-1, 2 objects on rank 2")


def test_blocks_of_two_lengths_are_told_as_blocks() -> None:
    one, two = ["all_reduce float32[4]"] * 3, ["all_reduce float32[4]"] * 2
    error = explain(words(part=0, block=one), words(part=0, block=two), words(part=0, block=one))
    assert error.what.endswith("a block of 3 on ranks 0,2, a block of 2 on rank 1")


def test_blocks_of_one_length_are_told_by_the_first_op_that_differs() -> None:
    one = ["all_reduce float32[3]", "all_reduce float32[4]"]
    two = ["all_reduce float32[3]", "all_reduce float32[6]"]
    error = explain(*[words(part=0, block=block) for block in (one, two, one)])
    assert error.what.endswith(
        "all_reduce float32[4] (2 of a block of 2) on ranks 0,2, "
        "all_reduce float32[6] (2 of a block of 2) on rank 1"
    )


def test_a_long_op_of_a_block_does_not_make_the_first_line_long() -> None:
    blocks = [[f"all_gather float32 blocks of {n}," + "1," * 200] for n in (1, 2)]
    assert len(explain(*[words(part=0, block=block) for block in blocks]).what) < 160


def test_the_first_op_in_which_blocks_differ_is_shown() -> None:
    same = [f"all_reduce float32[{n}]" for n in range(100)]
    other = [*same[:70], "all_reduce float32[999]", *same[71:]]
    error = explain(*[words(part=0, block=block) for block in (same, same, other)])
    assert "on ranks 0-1 a block of 100 (71 to 73 of 100: all_reduce float32[70]," in str(error)
    assert "on rank 2 a block of 100 (71 to 73 of 100: all_reduce float32[999]," in str(error)


def test_a_block_against_an_op_alone() -> None:
    block = ["all_reduce float32[4]"] * 2
    error = explain(words(), words(), words(part=0, block=block))
    assert error.what.endswith("no block on ranks 0-1, a block of 2 on rank 2")


def test_a_difference_deep_in_a_long_list_is_shown_with_its_place() -> None:
    counts = list(range(300))
    other = [*counts[:200], 7, *counts[201:]]
    calls = [words("all_gather", counts=c, shape=None) for c in (counts, counts, other)]
    stripped = [json.loads(call) for call in calls]
    for call in stripped:
        del call["facts"]["shape"]
    what = explain(*[json.dumps(call).encode() for call in stripped]).what
    assert "blocks of 0,1,2,3,4,5,... 300 in all; 200 at 200 on ranks 0-1" in what
    assert "7 at 200 on rank 2" in what


@pytest.mark.slow
def test_the_text_is_bounded_whatever_the_ranks_call() -> None:
    calls = [
        describe(
            {"kind": "all_reduce", "dtype": "float32", "shape": [rank] * 60},
            "all_reduce",
            f"/{'deep/' * 100}{rank}/train.py:{rank} (step)",
        )
        for rank in range(400)
    ]
    text = str(explain(*calls))
    assert "and 396 other calls on 396 ranks" in text
    assert len(text) < 1500
    assert len(text.splitlines()[0]) < 400


def test_many_lines_of_one_side_are_counted() -> None:
    calls = [words(line=rank) for rank in range(20)] + [words(shape=[3])]
    assert "ranks 3-19 called it at 17 more lines" in str(explain(*calls))


def test_files_of_one_name_show_with_their_folders() -> None:
    facts = {"kind": "all_reduce", "dtype": "float32", "shape": [4]}
    a = describe(facts, "all_reduce", "/run/a/train.py:8 (f)")
    b = describe({**facts, "shape": [3]}, "all_reduce", "/run/b/train.py:8 (f)")
    text = str(explain(a, a, b))
    assert "called all_reduce at a/train.py:8 (f)" in text
    assert "called all_reduce at b/train.py:8 (f)" in text


def test_two_dtypes_with_two_reduce_ops_are_two_calls_and_no_matter_of_the_dtype() -> None:
    calls = [words(op="SUM", shape=[1]), words(op="MAX", dtype="int64", shape=[1])]
    assert explain(*calls).hint == (
        "these are two different calls: see which call one side made, or left out, before this one"
    )
    assert "get their dtype" in str(explain(words(), words(dtype="int64")).hint)


def test_splits_that_do_not_fit_are_told_pair_by_pair() -> None:
    facts = {"kind": "all_to_all", "dtype": "float32"}
    calls = [
        describe(facts, "all_to_all_single", "/a/t.py:1 (f)", [1, 2], [1, 3]),
        describe(facts, "all_to_all_single", "/a/t.py:1 (f)", [4, 1], [2, 1]),
    ]
    error = explain(*calls)
    assert "rank 1 sends 4 elements to rank 0, which expects 3" in str(error)
    assert error.ranks == [0, 1]
    assert error.hint == "input_split_sizes[j] of rank i must be output_split_sizes[i] of rank j"
    assert "do not match between ranks 0-1" in str(error)
    same = [
        describe(facts, "all_to_all_single", "/a/t.py:1 (f)", sizes, sizes)
        for sizes in ([1, 2], [4, 1])
    ]
    assert explain(*same).hint == (
        "each rank expects from the others what it sends to them: exchange the sizes first, by an "
        "all_to_all of them"
    )


def test_the_rank_that_is_in_all_pairs_that_do_not_fit_is_the_odd_one() -> None:
    facts = {"kind": "all_to_all", "dtype": "float32"}
    given = [[2, 2, 2], [3, 2, 1], [2, 2, 2]]
    error = explain(
        *[describe(facts, "all_to_all_single", "/a/t.py:1 (f)", one, [2] * 3) for one in given]
    )
    assert error.ranks == [1]
    assert error.what.endswith("split sizes do not match on rank 1")
    assert "rank 1 sends 1 element to rank 2, which expects 2" in str(error)


def test_a_description_that_cannot_be_read_does_not_hide_the_others() -> None:
    error = explain(words(), b"\xff{", words())
    assert error.ranks == [1]
    assert "rank 1 called an op at an unknown line" in str(error)
