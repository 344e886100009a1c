"""What ranks are told when their models or their passes differ; pure."""

from __future__ import annotations

from distdbg.errors import MismatchError, OpTimeout, RankLeft, UsageError
from distdbg.runtime.parallel.reducer.agreement import (
    SKIPPED,
    Description,
    compare_models,
    is_skipped,
    retell,
    waiting_bucket,
)
from distdbg.runtime.parallel.reducer.pass_report import PassReport
from distdbg.runtime.parallel.reducer.passes import find_uneven, is_partial, judge_pass, used_by_any

SITE = "/home/me/train.py:12 (main)"
OTHER = "/home/me/train.py:14 (main)"


def described(*parameters: tuple[str, str], site: str = SITE, **options: object) -> Description:
    return Description(parameters, options, "DistributedDataParallel", site)


def test_equal_models_are_no_error() -> None:
    one = described(("a", "float32[2]"), cap=25)
    assert compare_models([one, one], [0, 1], "world", 0) is None


def test_each_parameter_that_differs_is_named_with_its_ranks() -> None:
    usual = described(("fc.weight", "float32[4,4]"), ("fc.bias", "float32[4]"))
    other = described(("fc.weight", "float32[5,4]"), ("head", "float16[1]"), site=OTHER)
    error = compare_models([usual, usual, other, usual], [0, 1, 2, 3], "dp", 2)
    assert isinstance(error, MismatchError)
    assert error.ranks == [2]
    assert str(error) == (
        "DDP on group 'dp': models differ: fc.weight: float32[4,4] on ranks 0-1,3, "
        "float32[5,4] on rank 2\n"
        "  fc.bias: float32[4] on ranks 0-1,3, missing on rank 2\n"
        "  head: missing on ranks 0-1,3, float16[1] on rank 2\n"
        "  ranks 0-1,3 called DistributedDataParallel at train.py:12 (main)\n"
        "  rank 2 called DistributedDataParallel at train.py:14 (main)\n"
        "  no value was exchanged; the group is still usable\n"
        "  this rank is the one that differs\n"
        "  hint: all ranks must make the same model, with its parts in the same order"
    )


def test_another_order_and_other_options_are_named() -> None:
    a, b = ("a", "float32[2]"), ("b", "float32[2]")
    error = compare_models([described(a, b), described(b, a)], [4, 5], "world", 4)
    assert error is not None
    assert error.what.endswith("parameter 0 in order: a on rank 4, b on rank 5")
    assert error.ranks == [4, 5]
    error = compare_models([described(a, cap=25), described(a, cap=10)], [0, 1], "world", 0)
    assert error is not None
    assert error.what.endswith("option cap: 25 on rank 0, 10 on rank 1")


def test_a_first_line_that_is_too_long_is_whole_in_the_details() -> None:
    name = "encoder." * 12 + "weight"
    error = compare_models(
        [described((name, "float32[4]")), described((name, "float32[5]"))], [0, 1], "world", 0
    )
    assert error is not None
    assert len(error.what) <= 120
    assert error.details[0] == f"{name}: float32[4] on rank 0, float32[5] on rank 1"


def reports(*facts: dict[str, object]) -> list[PassReport]:
    return [
        PassReport(number=3, **{"forwards": 1, "site": SITE, "function": "backward"} | one)
        for one in facts
    ]  # type: ignore[arg-type]


def test_a_parameter_unused_on_one_rank() -> None:
    error = judge_pass(
        reports({}, {"missing": ("fc2.weight", "fc2.bias")}, {}, {}), [0, 1, 2, 3], "world", 1
    )
    assert isinstance(error, MismatchError)
    assert error.ranks == [1]
    assert error.what == (
        "DDP step 3 on group 'world': rank 1 did not use fc2.weight, fc2.bias; ranks 0,2-3 did"
    )
    assert "ranks 0-3 called backward at train.py:12 (main)" in str(error)
    assert error.details[-1] == "this rank is the one that differs"


def test_different_parameters_on_different_ranks_are_a_line_each() -> None:
    error = judge_pass(reports({"missing": ("a", "c")}, {"missing": ("b", "c")}), [0, 1], "w", 0)
    assert isinstance(error, MismatchError)
    text = str(error)
    assert "rank 0 did not use a; rank 1 did" in text
    assert "no rank used c" in text
    assert "rank 1 did not use b; rank 0 did" in text


def test_what_no_rank_uses_is_wrong_on_all_of_them() -> None:
    error = judge_pass(reports({"missing": ("a",)}, {"missing": ("a",)}), [0, 1], "world", 0)
    assert isinstance(error, UsageError)
    assert error.what == "DDP step 3 on group 'world': no rank used a"
    assert "find_unused_parameters=True" in str(error.hint)


def test_a_parameter_that_a_static_graph_did_not_have() -> None:
    error = judge_pass(reports({"surplus": ("a",)}, {}), [0, 1], "world", 0)
    assert isinstance(error, UsageError)
    assert "rank 0 used a, which no first pass used" in error.what


def test_a_pass_that_some_ranks_give_up() -> None:
    raised = {"given_up": "its backward pass raised an error"}
    error = judge_pass(reports({}, raised, {}), [0, 1, 2], "world", 0)
    assert isinstance(error, MismatchError)
    assert error.ranks == [1]
    assert error.what == (
        "DDP step 3 on group 'world': rank 1 gave up the pass: its backward pass raised an error"
    )
    assert "hint: see the error of rank 1; all ranks are at the end of this pass" in str(error)
    other = {"given_up": "ValueError: " + "no data " * 20, "missing": ("a",)}
    error = judge_pass(reports(other, raised, {}), [0, 1, 2], "world", 0)
    assert isinstance(error, MismatchError)
    assert error.ranks == [0, 1]
    assert len(error.what) <= 120
    assert error.details[0] == f"rank 0 gave up the pass: {other['given_up']}"
    assert error.details[1] == f"rank 1 gave up the pass: {raised['given_up']}"
    assert judge_pass(reports(raised, raised), [0, 1], "world", 0) is None


def test_a_rank_that_goes_backward_again_after_one_forward_pass() -> None:
    error = judge_pass(reports({}, {}, {"forwards": 0}), [0, 1, 2], "world", 2)
    assert isinstance(error, MismatchError)
    assert error.ranks == [2]
    assert error.what == (
        "DDP step 3 on group 'world': rank 2 went backward again without going forward; not ranks 0-1"
    )
    assert judge_pass(reports({"forwards": 0}, {"forwards": 0}), [0, 1], "world", 0) is None


def test_unequal_numbers_of_forward_passes_are_a_warning() -> None:
    uneven = reports({}, {"forwards": 2})
    assert judge_pass(uneven, [0, 1], "world", 0) is None
    found = find_uneven(uneven, [0, 1], "world")
    assert found is not None
    assert found.ranks == [1]
    assert found.text == (
        "DDP step 3 on group 'world': has rank 1 skipped a backward pass? forward passes since the pass "
        "before: 1 on rank 0, 2 on rank 1; gradients of different steps may be averaged"
    )
    assert find_uneven(reports({}, {}), [0, 1], "world") is None
    left = RankLeft("all_reduce #9: rank 1 left", peer=1, how="left (returned)", group="world")
    reported = retell(left, 5, "DDP bucket 0 of fc", found)
    assert reported.details[-1] == found.text
    assert reported.what == (
        "DDP step 5 on group 'world' cannot complete: rank 1 left (returned); it skipped a backward pass "
        "at step 3"
    )
    assert str(reported.hint).endswith("see what rank 1 did before that step")


def test_a_forward_pass_that_was_thrown_away_is_a_backward_pass_that_was_skipped() -> None:
    thrown = {"forwards": 2, "thrown_away": 1, "thrown_site": OTHER}
    error = judge_pass(reports({}, thrown, {}), [0, 1, 2], "world", 1)
    assert isinstance(error, MismatchError)
    assert error.ranks == [1]
    assert str(error) == (
        "DDP step 3 on group 'world': rank 1 skipped a backward pass that ranks 0,2 ran\n"
        "  ranks 0-2 called backward at train.py:12 (main)\n"
        "  the outputs of the model at train.py:14 (main) were let go on rank 1: no backward pass came to "
        "them\n"
        "  forward passes since the pass before: 1 on ranks 0,2, 2 on rank 1\n"
        "  gradients of different steps were averaged: do not use them; the group is still usable\n"
        "  this rank is the one that differs\n"
        "  hint: see what decides that backward() is left out; a forward pass that needs none belongs under "
        "torch.no_grad()"
    )
    assert judge_pass(reports(thrown, thrown), [0, 1], "world", 0) is None
    # As many forward passes, of which one was dropped; more of them, of which not all were.
    assert judge_pass(reports({"forwards": 2}, thrown), [0, 1], "world", 0) is None
    assert judge_pass(reports({}, thrown | {"forwards": 4}), [0, 1], "world", 0) is None


def test_a_part_of_the_gradients_may_come_in_a_further_pass() -> None:
    first = reports(*[{"missing": ("b",), "awaits_more": True}] * 2)
    assert isinstance(judge_pass(first, [0, 1], "world", 0), UsageError)
    assert is_partial(first)
    assert not is_partial(reports({"missing": ("b",), "awaits_more": True}, {"missing": ("b",)}))
    assert used_by_any(first, ["a", "b"]) == [True, False]
    second = reports({"forwards": 0, "had": ("a",)}, {"forwards": 0})
    assert judge_pass(second, [0, 1], "world", 0) is None
    assert used_by_any(second, ["a", "b"]) == [True, True]


def test_batches_are_counted_where_there_are_no_forward_passes() -> None:
    def of(*batches: int) -> list[PassReport]:
        return reports(*({"function": "reduce", "batches": count} for count in batches))

    found = find_uneven(of(1, 1, 2), [0, 1, 2], "world")
    assert found is not None
    assert "has rank 2 skipped a pass? batches since the pass before: 1 on ranks 0-1" in found.text
    assert find_uneven(of(1, 0, 2), [0, 1, 2], "world") is None  # one has no loop that tells


def test_an_op_that_failed_is_told_in_the_words_of_the_pass() -> None:
    def site(function: str, *ranks: int) -> dict[str, object]:
        return {"function": function, "call_site": SITE, "ranks": list(ranks)}

    sides = [
        {"ranks": [0, 2], "sites": [site("all_reduce (DDP bucket 0 of fc)", 0, 2)]},
        {"ranks": [1], "sites": [site(f"broadcast (DDP buffers; {SKIPPED})", 1)]},
    ]
    error = MismatchError("op #9 differs", sides=sides, group="world", seq=9, ranks=[1])
    reported = retell(error, 3, "DDP bucket 0 of fc")
    assert reported.what == (
        "DDP step 3 on group 'world': rank 1 skipped a backward pass, in which ranks 0,2 wait"
    )
    assert is_skipped(error)
    assert waiting_bucket(error) == 0
    assert (reported.seq, reported.ranks, reported.details[0]) == (9, [1], "op #9 differs")
    assert retell(MismatchError("m", sides=sides[:1]), 3, "b").what == "m"

    late = OpTimeout("all_reduce #9 timed out", group="world", details=["missing: rank 1"])
    assert retell(late, 3, "DDP bucket 0 of fc") is late
    assert late.details[0] == "DDP step 3 on group 'world': DDP bucket 0 of fc"

    left = RankLeft("all_reduce #9: rank 1 left", peer=1, how="left (returned)", group="world")
    reported = retell(left, 3, "DDP bucket 0 of fc")
    assert reported.what == (
        "DDP step 3 on group 'world' cannot complete: rank 1 left (returned), needed for "
        "DDP bucket 0 of fc"
    )
    assert "join()" in str(reported.hint)

    how = "left (destroyed the group at one_batch_less.py:24)"
    left = RankLeft(f"all_reduce #9: rank 1 {how}", peer=1, how=how, group="world")
    reported = retell(left, 3, "DDP bucket 0 of fc")
    assert "rank 1 left (destroyed the group), needed for DDP bucket 0 of fc" in reported.what
    assert (reported.details[0], reported.how) == (left.what, how)
