from __future__ import annotations

from dataclasses import replace

from distdbg.diagnose.find import order_inversion
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from tests.support.noisy_job import Noise, play
from tests.support.session_builder import SessionBuilder


def find(session: Session) -> list[Finding]:
    return order_inversion.find(session, match(session), {})


def crossed(*, ranks: int = 3, odd: int = 1) -> SessionBuilder:
    """Asynchronous ops on two groups of all ranks, in another order on one."""
    build = SessionBuilder(world_size=ranks)
    for name in ("tp", "dp"):
        build.group(name, range(ranks))
    for rank in range(ranks):
        order = ("dp", "tp") if rank == odd else ("tp", "dp")
        for at, group in enumerate(order):
            build.op(
                rank, "all_reduce", group=group, is_async=True, at_s=1 + at * 0.1, ended_s=2.0,
                site=f"train.py:{10 if group == 'tp' else 20} (step)",
            )  # fmt: skip
    return build


def two_threads(*, overlap: bool, is_async: bool = False, group: str = "world") -> Session:
    build = SessionBuilder(world_size=2)
    build.group("metrics", (0, 1))
    for rank in (0, 1):
        for step in range(4):
            build.op(rank, "all_reduce", at_s=step, ended_s=step + 0.5, thread=1, is_async=is_async)
            at = step + (0.2 if overlap else 0.6)
            build.op(rank, "all_reduce", group=group, at_s=at, ended_s=at + 0.35, thread=2)
    return build.session


def test_crossed_asynchronous_ops_are_legal_here_and_a_note() -> None:
    (finding,) = find(crossed().session)

    assert finding.kind is FindingKind.ORDER_INVERSION
    assert finding.severity is Severity.NOTE
    assert finding.ranks == (1,)
    assert "'tp' and 'dp' in different orders: legal here" in finding.what
    assert {e.site for e in finding.evidence} == {"train.py:10 (step)", "train.py:20 (step)"}


def test_on_a_backend_with_one_queue_they_are_a_warning() -> None:
    session = crossed().session
    session.groups = [replace(group, backend="nccl") for group in session.groups]

    (finding,) = find(session)

    assert finding.severity is Severity.WARNING
    assert finding.what.endswith(": this can deadlock")


def test_ops_that_have_not_ended_are_left_to_the_deadlock_finder() -> None:
    build = SessionBuilder(world_size=2)
    for name in ("tp", "dp"):
        build.group(name, (0, 1))
    build.op(0, "all_reduce", group="tp", at_s=1.0)
    build.op(1, "all_reduce", group="dp", at_s=1.0)

    assert find(build.session) == []


def test_groups_that_share_one_rank_are_in_no_order() -> None:
    build = SessionBuilder(world_size=3)
    build.group("left", (0, 1))
    build.group("right", (1, 2))
    for step in range(4):
        for group in ("left", "right") if step % 2 else ("right", "left"):
            for rank in (0, 1) if group == "left" else (1, 2):
                build.op(rank, "all_reduce", group=group, at_s=step, ended_s=step + 0.1)

    assert find(build.session) == []


def test_an_order_that_changes_on_all_ranks_together_is_no_inversion() -> None:
    build = SessionBuilder(world_size=4)
    build.group("pair", (0, 1))
    for step in range(6):
        for rank in range(4):
            order = ["world", "pair"] if step % 2 else ["pair", "world"]
            for group in order:
                if group == "world" or rank < 2:
                    build.op(rank, "all_reduce", group=group, at_s=step, ended_s=step + 0.1)

    assert find(build.session) == []


def test_rings_that_have_lost_their_beginning_are_no_inversion() -> None:
    build = SessionBuilder(world_size=2)
    build.group("tp", (0, 1))
    for rank, first in ((0, 1), (1, 6)):
        for step in range(first, 12):
            build.op(rank, "all_reduce", group="tp", seq=step, at_s=step, ended_s=step + 0.1)
            build.op(rank, "all_reduce", seq=step, at_s=step + 0.2, ended_s=step + 0.3)

    assert find(build.session) == []


def test_two_threads_inside_ops_of_one_group_are_a_warning() -> None:
    (finding,) = find(two_threads(overlap=True))

    assert finding.severity is Severity.WARNING
    assert finding.ranks == (0, 1)
    assert "two threads of ranks 0-1 issue ops on group 'world' at one time" in finding.what


def test_two_threads_that_take_turns_are_not() -> None:
    assert find(two_threads(overlap=False)) == []


def test_a_thread_with_a_group_of_its_own_is_not() -> None:
    assert find(two_threads(overlap=True, group="metrics")) == []


def test_an_op_begun_before_another_threads_op_is_not() -> None:
    assert find(two_threads(overlap=True, is_async=True)) == []


def test_tensor_and_data_parallel_jobs_have_none() -> None:
    for seed in range(4):
        session = play(Noise(jitter=0.5, pauses=0.02), ranks=8, steps=20, seed=seed)
        assert find(session) == []
