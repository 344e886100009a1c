"""Who failed first, of all whose ends are known."""

from __future__ import annotations

import pytest

from distdbg.diagnose.traits import Trait
from distdbg.launch.diagnosis import Diagnosis
from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.last_seen import LastSeen
from distdbg.launch.root_cause import LossRole, find_root_cause
from tests.unit.launch.report_facts import (
    TRACE,
    code,
    ended,
    error,
    lost,
    record,
    reported,
    terminated,
)


def first_of(*evidence: LostRankEvidence) -> tuple[LossRole, list[int]]:
    found = find_root_cause(evidence)
    assert found is not None
    return found.role, [one.rank for one in found.first]


def test_a_victim_that_is_gone_earlier_is_not_the_cause() -> None:
    # A process that frees much memory is gone long after those whom its end has woken.
    assert first_of(lost(0, 2, 0.1), LostRankEvidence(end=ended(2, 5.0, signal=9))) == (
        LossRole.CAUSE,
        [2],
    )


def test_the_time_of_the_exception_counts_and_not_that_of_the_end() -> None:
    slow = LostRankEvidence(end=ended(0, 9.0, exit_code=1), error=error("ValueError: a", 1.0))
    fast = LostRankEvidence(end=ended(1, 2.0, exit_code=1), error=error("ValueError: b", 1.9))
    assert first_of(slow, fast) == (LossRole.CAUSE, [0])


def test_who_leaves_early_with_0_is_the_cause_for_those_who_needed_it() -> None:
    left = LostRankEvidence(end=ended(3, 1.0))
    text = "RankLeft: rank 3 returned while ranks 0-2 waited in all_reduce #4"
    others = [
        LostRankEvidence(end=ended(r, 1.5, exit_code=1), error=error(text, 1.2, because_of=(3,)))
        for r in range(3)
    ]
    assert first_of(left, *others) == (LossRole.LEAVER, [3])
    assert code(left, *others) == 1
    assert reported(left, *others).splitlines()[0] == (
        "MISMATCH: rank 3 ended with exit code 0 while other ranks still needed it"
    )


def test_a_chain_of_losses_ends_at_the_one_that_lost_nobody() -> None:
    chain = [lost(0, 1, 1.3), lost(1, 2, 1.2), LostRankEvidence(end=ended(2, 1.1, exit_code=3))]
    assert first_of(*chain) == (LossRole.CAUSE, [2])


def test_who_was_ended_by_the_launcher_never_wins() -> None:
    killed = LostRankEvidence(end=ended(0, 0.5, signal=9, was_asked=True))
    assert first_of(killed, LostRankEvidence(end=ended(1, exit_code=3))) == (LossRole.CAUSE, [1])
    assert first_of(killed, terminated(1)) == (LossRole.TERMINATED, [0])


def test_who_had_failed_before_it_was_ended_is_the_first() -> None:
    late = LostRankEvidence(
        end=ended(0, 9.0, exit_code=1, was_asked=True), error=error("ValueError: a", 0.1)
    )
    assert first_of(late, LostRankEvidence(end=ended(1, 1.0, exit_code=3))) == (LossRole.CAUSE, [0])


def test_a_closed_connection_is_suspected_only_when_nobody_else_is_guilty() -> None:
    gloo = LostRankEvidence(
        end=ended(0, 0.5, exit_code=1),
        error=error("RuntimeError: Connection closed by peer [127.0.0.1]:4711", 0.4),
    )
    assert first_of(gloo, LostRankEvidence(end=ended(1, 1.0, signal=9))) == (LossRole.CAUSE, [1])
    assert first_of(gloo, terminated(1)) == (LossRole.SUSPECT, [0])


def test_without_any_error_file_the_record_tells_a_victim() -> None:
    facts = record("", error_type="PeerLost", error_ranks=(1,), rank=0)
    victim = LostRankEvidence(end=ended(0, 0.5, exit_code=3), record=facts)
    assert first_of(victim, LostRankEvidence(end=ended(1, 1.0, exit_code=4))) == (
        LossRole.CAUSE,
        [1],
    )
    # One that is killed was not ended by an error that it had survived.
    killed = LostRankEvidence(end=ended(0, 0.5, signal=11), record=facts)
    assert first_of(killed, LostRankEvidence(end=ended(1, 1.0, exit_code=4))) == (
        LossRole.CAUSE,
        [0],
    )


def test_a_rank_of_another_host_is_named_although_nothing_is_known_of_it() -> None:
    role, ranks = first_of(lost(0, 7), lost(1, 7, 1.2))
    assert (role, ranks) == (LossRole.VICTIM, [0, 1])
    assert "  rank 7: how it ended is not known here; it may be on another host" in reported(
        lost(0, 7), lost(1, 7, 1.2)
    )


def test_hosts_whose_clocks_differ_are_not_compared_to_the_millisecond() -> None:
    text = reported(
        LostRankEvidence(end=ended(0, 1.0, exit_code=3)),
        LostRankEvidence(end=ended(4, 1.4, "n15", exit_code=4)),
        LostRankEvidence(end=ended(8, 9.0, "n16", exit_code=5)),
    )
    assert "  rank 4 failed on another host within a second: clocks of hosts differ" in text
    # What a rank says of others needs no clock: n15 is 100 s late here.
    ahead = LostRankEvidence(end=ended(0, 101.0, exit_code=3))
    assert first_of(ahead, lost(4, 0, 1.0, host="n15")) == (LossRole.CAUSE, [0])


def test_a_verdict_that_aborts_the_job_is_told_by_all_who_were_waiting() -> None:
    text = "JobAborted: ranks 0-1 are deadlocked: a deadlock"
    aborted = [
        LostRankEvidence(end=ended(r, exit_code=1), error=error(text, because_of=(0, 1)))
        for r in range(3)
    ]
    assert first_of(*aborted) == (LossRole.VICTIM, [0, 1, 2])
    assert reported(*aborted).splitlines()[0] == f"FAILED: ranks 0-2 raised {text}"


def test_models_that_ddp_refuses_are_told_by_whose_differs() -> None:
    said = "RuntimeError: DDP expects same model across all ranks, but Rank {} has {} params, while ..."
    shown = Diagnosis(
        kind="dead rank",
        what="the models for DDP differ: rank 2 has 4 parameters that require grad, ranks 0-1 have 6",
        ranks=(2,),
        advice="see what makes the model of rank 2 another one: requires_grad, or its settings",
        traits=frozenset((Trait.MODELS_DIFFER,)),
    )
    failed = [
        LostRankEvidence(end=ended(rank, exit_code=1), error=error(said.format(rank, count)))
        for rank, count in ((1, 6), (2, 4), (0, 6))
    ]
    lines = reported(*failed, diagnosis=shown).splitlines()
    assert lines[0] == f"FAILED: {shown.what}"
    assert f"  hint: {shown.advice}" in lines


@pytest.mark.parametrize("first", [0, 2])
def test_in_a_chain_of_waits_the_last_one_is_told_whoever_gave_up_first(first: int) -> None:
    """Rank 0 waits for rank 2, rank 2 for rank 1, which is asleep: all have the same limit."""
    said = {
        rank: LostRankEvidence(
            end=ended(rank, 1.0, cause="exited", exit_code=1),
            error=error(
                f"OpTimeout: {kind} on group 'world' waited 2.0 s for rank {whom}",
                at_s=0.8 if rank == first else 0.9,
                waits_for=(whom,),
            ),
        )
        for rank, kind, whom in ((0, "send", 2), (2, "recv", 1))
    }
    text = reported(*said.values(), seen={1: LastSeen("asleep in main() at job.py:27")})
    assert text.startswith("HUNG: rank 1 was asleep in main() at job.py:27\n")
    assert "  rank 2 raised OpTimeout: recv on group 'world' waited 2.0 s for rank 1" in text
    assert "rank 0 failed because of it: OpTimeout" in text


def test_who_found_the_group_broken_is_no_cause_beside_the_one_that_timed_out() -> None:
    """Rank 0 holds a file lock in a barrier: the others come when it has given up."""
    late = error("OpTimeout: barrier #1 waited 15 s for ranks 1-2", at_s=0.9, waits_for=(1, 2))
    broken = "CollectiveError: barrier #1 on group 'world' cannot run: rank 0 timed out in op #1"
    others = [
        LostRankEvidence(
            end=ended(rank, 1.2, cause="exited", exit_code=3), error=error(broken, at_s=1.1)
        )
        for rank in (1, 2)
    ]
    first = LostRankEvidence(end=ended(0, 1.0, cause="exited", exit_code=1), error=late)
    text = reported(
        *others, first, seen=dict.fromkeys((1, 2), LastSeen("asleep in load() at tables.py:16"))
    )
    assert text.startswith("HUNG: rank 1 was asleep in load() at tables.py:16\n")
    assert "rank 0 raised OpTimeout" in text


def test_what_an_error_was_raised_from_stands_below_it() -> None:
    failed = error("RuntimeError: the loader is gone", cause="OSError: no such shard")
    lines = reported(LostRankEvidence(end=ended(1, exit_code=1), error=failed)).splitlines()
    assert lines[0].startswith("FAILED: rank 1 raised RuntimeError: the loader is gone")
    assert "  caused by OSError: no such shard" in lines


def test_what_was_added_to_an_error_stands_below_its_line() -> None:
    raised = error("ValueError: no data", notes=("of rank 2",), traceback=TRACE, hint="ask rank 2")
    lines = reported(LostRankEvidence(end=ended(0, exit_code=1), error=raised)).splitlines()
    assert lines[1:4] == [
        "  at train.py:80 (main): step(batch)",
        "  of rank 2",
        "  hint: ask rank 2",
    ]


SAVING = "RuntimeError: no key (CheckpointException)"
OF_ANOTHER = "CheckpointException: RuntimeError: no key (RANK 1)"


def test_who_passed_its_error_on_to_others_is_the_cause_though_the_launcher_ended_it() -> None:
    inner = TRACE.replace("train.py", "load.py").replace("ValueError", "RuntimeError")
    raised = error(SAVING, 1.2, traceback=TRACE, inner=inner)
    failed = LostRankEvidence(end=ended(1, 1.3, signal=15, was_asked=True), error=raised)
    other = LostRankEvidence(end=ended(0, 1.1, exit_code=1), error=error(OF_ANOTHER, 0.9))
    text = reported(failed, other)
    lines = text.splitlines()
    assert lines[0] == f"FAILED: rank 1 raised {SAVING}"
    assert lines[1:3] == [
        "  at load.py:80 (main): step(batch)",
        "  at train.py:80 (main): step(batch)",
    ]
    assert "  rank 0 failed because of it: CheckpointException" in lines
    assert "terminated" not in text


def test_who_raised_the_error_of_another_rank_is_first_where_that_one_has_said_nothing() -> None:
    other = LostRankEvidence(end=ended(0, 1.1, exit_code=1), error=error(OF_ANOTHER, 0.9))
    assert first_of(other, terminated(1)) == (LossRole.CAUSE, [0])
