"""A hang or a mismatch is told by the rank that ran out of batches."""

from __future__ import annotations

from dataclasses import replace

from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit
from distdbg.record.known_marks import BATCH, OUT_OF_BATCHES
from tests.support.session_builder import SessionBuilder

EPOCH = 5


def build(short: int, then: str = "") -> SessionBuilder:
    """Rank 1 of 3 has `short` batches, the others one more, in whose all_reduce they wait."""
    made = SessionBuilder(world_size=3)
    for rank in range(3):
        for batch in range(1, short + (1 if rank == 1 else 2)):
            is_last = batch > short
            made.mark(rank, BATCH, batch, at_s=batch)
            made.op(
                rank, "all_reduce", at_s=batch + 0.1, ended_s=None if is_last else batch + 0.2,
                site="train.py:9 (main)", inputs=[(4,)],
            )  # fmt: skip
    made.mark(1, OUT_OF_BATCHES, short, at_s=short + 0.5)
    if then:
        made.op(1, then, at_s=short + 0.6, site="train.py:10 (main)")
    return made


def test_a_rank_that_returned_ran_out_of_batches() -> None:
    made = build(EPOCH)
    made.exit(1, Exit.RETURNED, at_s=7.0)
    verdict = diagnose(made.session)
    assert verdict.what == "rank 1 ran out of batches at step 6, ranks 0,2 went on"
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.MISSING_RANK
    assert (verdict.root.ranks, verdict.root.victims) == ((1,), (0, 2))
    texts = [one.text for one in verdict.root.evidence]
    assert texts[0] == "rank 1 had 5 batches; ranks 0,2 began one more"
    assert texts[1].startswith("rank 1 returned while ranks 0,2 waited for it in all_reduce #6")
    assert not any("cannot be distinguished" in text for text in texts)
    assert "dist.Join" in verdict.root.advice


def test_a_watched_torch_job_is_shown_torchs_join() -> None:
    made = build(EPOCH)
    made.exit(1, Exit.RETURNED, at_s=7.0)
    group = made.session.groups[0]
    made.session.groups[0] = replace(group, backend="torch-gloo")
    root = diagnose(made.session).root
    assert root is not None
    assert root.advice.endswith("join: torch.distributed.algorithms.join.Join")


def test_a_rank_in_another_op_ran_out_of_batches() -> None:
    verdict = diagnose(build(EPOCH, "barrier").session)
    assert verdict.what.startswith("rank 1 ran out of batches at step 6")
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.MISMATCH


def test_an_end_by_join_names_who_had_no_batch_left() -> None:
    made = SessionBuilder(world_size=2)
    for rank in range(2):
        made.op(rank, "all_reduce", at_s=1.0, ended_s=1.1)
        made.found(
            rank, "CollectiveError", "rank 0 ran out of batches at step 4; Join ends all", at_s=1.2,
            kind="Join", group="world", ranks=(0,), details=("rank 0 had no batch left at t.py:3 (main)",),
        )  # fmt: skip
        made.exit(rank, Exit.RAISED, at_s=1.3, what="CollectiveError: rank 0 ran out of batches")
    root = diagnose(made.session).root
    assert root is not None
    assert (root.kind, root.ranks, root.victims) == (FindingKind.FAILED_OP, (0,), (1,))
    assert root.what == "rank 0 ran out of batches at step 4; Join ends all"
    assert root.evidence[0].site == "t.py:3 (main)"


def test_an_earlier_epoch_is_told_and_not_that_calls_are_alike() -> None:
    made = SessionBuilder(world_size=2)
    for rank, count in enumerate((5, 3)):
        at_s = 0.0
        for _ in range(10 // count):
            for batch in range(1, count + 1):
                at_s += 1.0
                if at_s > 9 + (rank == 0):
                    break
                made.mark(rank, BATCH, batch, at_s=at_s)
                made.op(
                    rank, "all_reduce", at_s=at_s + 0.1, ended_s=at_s + 0.2 if at_s < 10 else None,
                    site="train.py:9 (main)", inputs=[(4,)],
                )  # fmt: skip
            else:
                if at_s < 10:
                    made.mark(rank, OUT_OF_BATCHES, count, at_s=at_s + 0.5)
    made.exit(1, Exit.RETURNED, at_s=10.0)
    verdict = diagnose(made.session)
    assert verdict.what == (
        "rank 1 ran out of batches at step 4 of an earlier epoch (3 batches, rank 0 had 5)"
    )
    assert verdict.root is not None
    assert not any("cannot be distinguished" in one.text for one in verdict.root.evidence)


def test_without_marks_the_finding_stays_as_it_is() -> None:
    made = build(EPOCH)
    made.exit(1, Exit.RETURNED, at_s=7.0)
    for log in made.session.ranks.values():
        log.notes = ()
    assert diagnose(made.session).what.startswith("rank 1 returned while ranks 0,2 waited")
