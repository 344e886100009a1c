"""Steps that DDP did not reduce are a note; not those that the program reduces by itself."""

from __future__ import annotations

from distdbg.diagnose.finding import FindingKind, Severity
from distdbg.diagnose.verdict import diagnose
from distdbg.record.known_marks import NOT_REDUCED, STEP
from tests.support.session_builder import SessionBuilder


def train(*unreduced: int, steps: int = 4, by_hand_at: float | None = None) -> SessionBuilder:
    """Two ranks: a mark at s.2 of a step that is not reduced, an op at s + `by_hand_at`, its end at s.8."""
    build = SessionBuilder(2)
    for rank in range(2):
        for step in range(1, steps + 1):
            if step in unreduced:
                build.mark(rank, f"{NOT_REDUCED}head.weight", step, at_s=step + 0.2)
            if by_hand_at is not None:
                at_s = step + by_hand_at
                build.op(rank, "all_reduce", at_s=at_s, ended_s=at_s + 0.1)
            build.mark(rank, STEP, step, at_s=step + 0.8)
    return build


def test_steps_that_nobody_reduces_are_one_note_of_all_ranks() -> None:
    verdict = diagnose(train(3, 4).session)
    assert verdict.root is None
    [found] = verdict.findings
    assert (found.kind, found.severity) == (FindingKind.DIVERGED, Severity.NOTE)
    assert (
        found.what == "ranks 0-1 made 2 steps, from step 3 on, whose gradients DDP did not reduce"
    )
    assert found.evidence[0].text == (
        "rank 0 gave gradients to head.weight in step 3, and the forward pass of its DDP had not run"
    )


def test_an_op_at_another_time_than_between_the_pass_and_the_end_of_its_step_is_no_reduction() -> (
    None
):
    for at in (0.0, 0.9):
        assert len(diagnose(train(2, by_hand_at=at).session).findings) == 1


def test_gradients_that_the_program_reduces_are_none() -> None:
    assert diagnose(train(1, 2, 3, 4, by_hand_at=0.5).session).findings == ()


def test_a_pass_whose_step_never_ends_is_none() -> None:
    build = train()
    build.mark(0, f"{NOT_REDUCED}head.weight", 5, at_s=6)
    assert diagnose(build.session).findings == ()
