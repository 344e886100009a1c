"""Every program of the catalogue ends exactly as it says: named when it is wrong, else silence.

The programs that were selected run first, several at a time, since most of them wait for something;
then each has a test of its own.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from runner.diagnosis import score_diagnosis
from runner.pool import Result, run_programs
from runner.score import score
from runner.truth import Truth, all_programs, read_truth

# All programs run in the set-up of the first test.
pytestmark = [pytest.mark.ranks, pytest.mark.timeout(1800)]

TRUTHS = {truth.name: truth for truth in map(read_truth, all_programs())}

#: What is not noticed yet, by what it waits for. A program that passes must be taken out.
_WAITING: dict[str, str] = {}
NOT_YET = {
    f"wrong/{name}": f"waits for: {what}"
    for what, names in _WAITING.items()
    for name in names.split()
}

#: Sixteen mismatches of which torch gloo names 0 with its debug OFF and 5 at DETAIL.
SCOREBOARD = {
    "shape": "shape",
    "ndim": "flattened_on_one_rank",
    "dtype": "dtype",
    "op": "another_op",
    "op against barrier": "barrier_instead_of_the_op",
    "reduce op": "reduce_op",
    "broadcast root": "broadcast_root",
    "reduce dst": "reduce_dst",
    "gather dst": "gather_dst",
    "all_to_all splits": "all_to_all_splits",
    "all_to_all dtype": "all_to_all_dtype",
    "message shape": "message_shape",
    "message dtype": "message_dtype",
    "stride": "a_transposed_view",
    "swapped order": "two_equal_reductions_swapped",
    "coalesced shape": "coalesced_shape",
}

#: These show each class of error once; the others are slow.
FIRST = {f"wrong/{name}" for name in SCOREBOARD.values()} | {
    "wrong/both_receive_first",
    "wrong/killed",
    "wrong/returns_early",
    "wrong/rank_0_is_late",
    "right/gradient_buckets",
    "right/overlapping_groups",
    "right/rank_0_writes_a_checkpoint",
    "right/p2p_then_barrier",
    "right/crossed_async_groups",
}

#: What goes wrong in torch, each with the program that shows it does not here.
REPRODUCTIONS = {
    "B1: the peer's op has a made-up name": ["wrong/barrier_instead_of_the_op"],
    "B2: gradient hooks on a CPU group crash": ["right/gradient_hooks"],
    "B3: a message before a barrier is a false alarm": ["right/p2p_then_barrier"],
    "B4: crossed asynchronous groups deadlock": ["right/crossed_async_groups"],
    "B5: other reduce op, root or stride is silently wrong": [
        "wrong/reduce_op",
        "wrong/broadcast_root",
        "wrong/a_transposed_view",
    ],
    "B6: a message is read as another dtype": ["wrong/message_dtype"],
}


def _programs(names: list[str]) -> list[Any]:
    """Parameters with the marks that the programs need."""
    params = []
    for name in names:
        marks = []
        if name in NOT_YET:
            marks.append(pytest.mark.xfail(strict=True, reason=NOT_YET[name]))
        if TRUTHS[name].needs_torch:
            marks.append(pytest.mark.torch)
        if name not in FIRST:
            marks.append(pytest.mark.slow)
        params.append(pytest.param(name, marks=marks))
    return params


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, list[Result]]:
    """How the ranks of each program of the selected tests ended."""
    chosen: set[str] = set()
    for item in request.session.items:
        is_left_out = item.get_closest_marker("skip")
        if item.path == request.path and isinstance(item, pytest.Function) and not is_left_out:
            chosen |= {name for name in _names_of(item) if name in TRUTHS}
    truths = [TRUTHS[name] for name in sorted(chosen)]
    with_torch = [truth for truth in truths if truth.needs_torch]
    outcomes = _run([truth for truth in truths if not truth.needs_torch])
    if with_torch and importlib.util.find_spec("torch"):
        outcomes |= _run(with_torch, modules=["torch", "torch._dynamo"], side_by_side=1)
    return outcomes


@pytest.fixture(scope="module")
def complaints(outcomes: dict[str, list[Result]]) -> dict[str, list[str]]:
    """What is wrong with each of them."""
    return {name: score(TRUTHS[name], results) for name, results in outcomes.items()}


def _run(truths: list[Truth], **how: Any) -> dict[str, list[Result]]:
    # The longest first: what waits for a timeout must not be what is left at the end.
    return run_programs(sorted(truths, key=lambda t: "OpTimeout" not in t.outcome), **how)


def _names_of(item: pytest.Function) -> list[str]:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    names = params.get("names", [params.get("name", "")])
    return list(names)


@pytest.mark.parametrize("name", _programs(sorted(TRUTHS)))
def test_program_ends_as_it_says(name: str, complaints: dict[str, list[str]]) -> None:
    if TRUTHS[name].needs_torch:
        pytest.importorskip("torch")
    assert not complaints[name], "\n".join([TRUTHS[name].about, *complaints[name]])


@pytest.mark.parametrize("name", _programs(sorted(TRUTHS)))
def test_diagnosis_names_the_cause(name: str, outcomes: dict[str, list[Result]]) -> None:
    truth = TRUTHS[name]
    if truth.needs_torch:
        pytest.importorskip("torch")
    diagnosis = outcomes[name][0].get("diagnosis")
    assert diagnosis is not None, "the ranks have left no record"
    found = score_diagnosis(truth, diagnosis)
    assert not found, "\n".join([truth.about, *found])


def _row(what: str, names: list[str]) -> Any:
    reasons = [NOT_YET[name] for name in names if name in NOT_YET]
    marks: list[Any] = [pytest.mark.xfail(strict=True, reason=reasons[0])] if reasons else []
    if any(TRUTHS[name].needs_torch for name in names):
        marks.append(pytest.mark.torch)
    return pytest.param(names, id=what, marks=marks)


@pytest.mark.parametrize(
    "names", [_row(what, [f"wrong/{name}"]) for what, name in SCOREBOARD.items()]
)
def test_scoreboard(names: list[str], complaints: dict[str, list[str]]) -> None:
    (name,) = names
    truth = TRUTHS[name]
    # Nothing is on the board that would not have to name the op, the ranks and both lines.
    assert truth.says or truth.warns
    assert set(truth.sites) >= set(range(truth.ranks))
    assert not complaints[name], "\n".join(complaints[name])


@pytest.mark.parametrize("names", [_row(what, names) for what, names in REPRODUCTIONS.items()])
def test_what_goes_wrong_in_torch_does_not_here(
    names: list[str], complaints: dict[str, list[str]]
) -> None:
    if any(TRUTHS[name].needs_torch for name in names):
        pytest.importorskip("torch")
    for name in names:
        assert not complaints[name], "\n".join(complaints[name])


def test_catalogue_has_enough_programs_and_traps() -> None:
    right = sum(truth.is_right for truth in TRUTHS.values())
    assert len(TRUTHS) >= 70
    assert right >= len(TRUTHS) / 3
    assert len(SCOREBOARD) == 16


@pytest.mark.parametrize("truth", TRUTHS.values(), ids=list(TRUTHS))
def test_program_states_a_truth_that_can_be_missed(truth: Truth) -> None:
    assert truth.about
    assert 2 <= truth.ranks <= 4
    if truth.is_right:
        assert set(truth.outcome) == {"silent"}
        assert not truth.warns
        return
    assert set(truth.outcome) != {"silent"} or truth.warns or truth.verdict.kind
    assert set(truth.warned) <= set(range(truth.ranks))
    for rank, end in enumerate(truth.outcome):
        if end == "MismatchError":
            assert truth.says
            assert rank in truth.sites, "a mark must say where this rank called the op"
        if end in ("PeerLost", "RankLeft"):
            assert truth.odd
    if "OpTimeout" in truth.outcome:
        assert any(missing is not None for missing in truth.missing)


def test_not_yet_lists_programs_that_exist() -> None:
    assert set(NOT_YET) <= set(TRUTHS)
