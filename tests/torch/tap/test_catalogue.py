"""The programs of the catalogue as torch programs on gloo, watched: they end as on our own backend.

Same class of error, same ranks, same lines, same cause in the diagnosis. The words of a first line may be
others: torch's object collectives are all_gathers and broadcasts of bytes, for example. What differs is
listed with the reason; there nobody may hang or crash.

`make torch-programs` runs all of them (TORCH_PROGRAMS=all); else a part of each kind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "programs"))

from runner.diagnosis import score_diagnosis
from runner.pool import Result, run_programs
from runner.score import describe_end, score
from runner.truth import all_programs, read_truth

pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow, pytest.mark.timeout(1500)]

TRUTHS = {truth.name: truth for truth in map(read_truth, all_programs()) if truth.is_for_torch}

_DIFFERS: dict[str, str] = {
    "torch's own op does something else, with or without us": """
        right/a_transposed_matrix right/all_gather_of_different_lengths right/empty_arrays
        right/one_array_to_many right/sent_array_used_after_the_wait right/waited_for_in_other_ways
        right/groups_made_by_their_members right/coalesced_block wrong/a_transposed_view
        wrong/list_of_the_wrong_length wrong/no_list_to_scatter wrong/unused_layer_under_hooks
    """,
    "objects travel as arrays of bytes: two object lists of one length look alike": """
        wrong/objects_against_arrays wrong/object_lists_of_two_lengths
    """,
    "what is looked at in arrays and handles of our own groups alone": """
        wrong/a_group_for_every_step wrong/buffer_changed_in_flight wrong/handles_kept_and_forgotten
        wrong/gradient_in_two_groups_at_once wrong/nan_in_an_input wrong/one_array_for_two_receives
        wrong/received_where_it_is_sent_from wrong/sent_array_used_again wrong/work_dropped_in_a_loop
        wrong/send_dropped_by_a_function wrong/two_equal_reductions_swapped
        wrong/whose_message_comes_first
    """,
    "torch's store goes with rank 0, while the others still make a group": """
        wrong/in_a_subgroup
    """,
    "the receiver finds it, and tells the sender both lines but not in all of its words": """
        wrong/message_dtype wrong/message_shape wrong/halo_exchange_width
    """,
    "the first timeout breaks torch's group: the others are told that, not a timeout of their own": """
        wrong/nobody_receives wrong/nobody_sends wrong/sent_to_the_wrong_rank wrong/both_send_first
        wrong/both_receive_first wrong/tag wrong/received_from_the_wrong_rank
        wrong/taken_by_a_recv_from_any wrong/the_other_groups_reduction wrong/a_cycle_of_three_groups
        wrong/group_argument_forgotten wrong/equal_groups_in_another_order
    """,
}  # fmt: skip
DIFFERS = {name: why for why, names in _DIFFERS.items() for name in names.split()}

#: Rows of which torch hangs or crashes with some without us as well.
TORCHS_OWN = {why for why in DIFFERS.values() if why.startswith("torch")}

#: Each kind of error and of right program; few of them wait for a timeout.
FIRST = [
    "right/crossed_async_groups",
    "right/gradient_buckets",
    "right/overlapping_groups",
    "right/pipeline_stages",
    "right/p2p_then_barrier",
    "right/ring_in_one_batch",
    "right/tensor_and_data_parallel",
    "wrong/all_to_all_dtype",
    "wrong/all_to_all_splits",
    "wrong/another_op",
    "wrong/barrier_instead_of_the_op",
    "wrong/broadcast_root",
    "wrong/coalesced_shape",
    "wrong/creation_order",
    "wrong/dtype",
    "wrong/flattened_on_one_rank",
    "wrong/gather_dst",
    "wrong/killed",
    "wrong/message_shape",
    "wrong/monitored_barrier_names_the_missing",
    "wrong/reduce_dst",
    "wrong/reduce_op",
    "wrong/returns_early",
    "wrong/shape",
    "wrong/reduce_scatter_shard",
]

NAMES = sorted(TRUTHS) if os.environ.get("TORCH_PROGRAMS") == "all" else FIRST


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[Result]]:
    """How the ranks of each program ended; those that wait longest first."""
    truths = sorted((TRUTHS[name] for name in NAMES), key=lambda t: "OpTimeout" not in t.outcome)
    return run_programs(truths, subject="watched", side_by_side=2)


@pytest.mark.parametrize("name", NAMES)
def test_program_ends_as_on_our_own_backend(name: str, outcomes: dict[str, list[Result]]) -> None:
    truth, results = TRUTHS[name], outcomes[name]
    if name in DIFFERS:
        bad = {"SIGABRT", "SIGSEGV", "SIGBUS", "hung"}
        ends = {describe_end(result) for result in results}
        assert not bad & ends or DIFFERS[name] in TORCHS_OWN
        return
    diagnosis: Any = results[0].get("diagnosis")
    assert diagnosis is not None, "the ranks have left no record"
    complaints = [
        line for line in score(truth, results) if "the first line does not say" not in line
    ]
    complaints += score_diagnosis(truth, diagnosis)
    assert not complaints, "\n".join([truth.about, *complaints])


def test_what_differs_exists() -> None:
    assert set(DIFFERS) <= set(TRUTHS)
    assert set(FIRST) <= set(TRUTHS)
