"""Who comes late again and again; what is no straggler is the larger part."""

from __future__ import annotations

import random
from itertools import count

import pytest

from distdbg.diagnose.find import straggler
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from distdbg.diagnose.verdict import diagnose
from tests.support.noisy_job import Noise, play
from tests.support.session_builder import SessionBuilder

QUIET = Noise(jitter=0.05)
HEALTHY = {
    "jitter": Noise(jitter=0.4),
    "much jitter": Noise(jitter=1.0),
    "pauses": Noise(jitter=0.3, pauses=0.02),
    "garbage collection": Noise(jitter=0.2, stalls=0.05),
    "checkpoints": Noise(checkpoint_every=20),
    "oversubscription": Noise(jitter=0.3, slots=8),
    "uneven work": Noise(jitter=0.3, uneven=1.0),
    "all at once": Noise(jitter=0.4, pauses=0.01, stalls=0.03, uneven=0.5, checkpoint_every=25),
    "wrong clocks": Noise(skew_ns=20_000_000),
}


def find(session: Session) -> list[Finding]:
    return straggler.find(session, match(session), {})


def lockstep(late: dict[int, float], *, ranks: int = 4, ops: int = 40) -> SessionBuilder:
    """One all_reduce each 100 ms; some ranks come so much later."""
    build = SessionBuilder(world_size=ranks)
    for step in range(ops):
        start = step * 0.1 + max([0.0, *late.values()])
        for rank in range(ranks):
            build.op(
                rank,
                "all_reduce",
                at_s=step * 0.1 + late.get(rank, 0.0),
                started_s=start,
                ended_s=start + 0.001,
                site="/job/train.py:80 (step)",
            )
    return build


def test_the_rank_that_comes_late_each_time_is_named_with_by_how_much() -> None:
    (finding,) = find(lockstep({2: 0.03}).session)

    assert finding.kind is FindingKind.STRAGGLER
    assert finding.severity is Severity.WARNING
    assert finding.ranks == (2,)
    assert finding.victims == (0, 1, 3)
    assert finding.what == (
        "rank 2 comes late to all_reduce on group 'world': by 30 ms in all of the ops"
    )
    assert finding.numbers["late_s"] == pytest.approx(0.03)
    assert finding.numbers["times"] == 40
    assert finding.numbers["cost_s"] == pytest.approx(40 * 3 * 0.03)
    assert "train.py:80 (step)" in finding.evidence[0].text


def test_it_is_said_since_when_a_rank_is_late_and_after_which_mark() -> None:
    session = play(QUIET, ranks=4, slow={1: 3.0}, slow_from=25, seed=1)

    (finding,) = find(session)

    assert finding.ranks == (1,)
    assert "after 'step' 2" in finding.evidence[0].text
    assert finding.at_ns is not None


def test_it_is_said_when_a_rank_is_in_time_again() -> None:
    def late_for_a_while(by_s: float) -> Finding:
        build = SessionBuilder(world_size=3)
        for step in range(120):
            for rank in range(3):
                late = by_s if rank == 1 and 20 <= step < 60 else 0.0
                build.op(rank, "all_reduce", at_s=step * 0.1 + late, ended_s=step * 0.1 + 0.04)
        (finding,) = find(build.session)
        return finding

    finding = late_for_a_while(0.03)
    assert "since all_reduce #21" in finding.evidence[0].text
    assert finding.evidence[0].text.endswith("until #60")
    assert finding.severity is Severity.WARNING
    assert late_for_a_while(0.01).severity is Severity.NOTE  # over, and cost less than a second


def test_two_stragglers_are_two_findings() -> None:
    found = find(lockstep({1: 0.03, 5: 0.031}, ranks=8).session)

    assert sorted(finding.ranks for finding in found) == [(1,), (5,)]


def test_a_rank_that_is_late_at_one_of_ten_ops_of_each_step_is_found() -> None:
    build = SessionBuilder(world_size=4)
    for step in range(300):
        for rank in range(4):
            late = 0.05 if rank == 3 and step % 10 == 0 else 0.0
            build.op(rank, "all_reduce", at_s=step * 0.08 + late, ended_s=step * 0.08 + 0.051)

    (finding,) = find(build.session)

    assert finding.ranks == (3,)
    assert finding.numbers["share_of_ops"] == pytest.approx(0.1, abs=0.01)


def test_one_slow_part_among_many_short_ones_is_found_with_its_lines() -> None:
    build, clock = SessionBuilder(world_size=3), 0.0
    for _ in range(40):
        for line in range(8):
            came = [clock + 0.0001, clock + 0.0001, clock + 0.0001]
            if line == 5:
                came[1] += 0.02
            clock = max(came) + 0.0002
            for rank in range(3):
                build.op(
                    rank, "all_reduce", at_s=came[rank], started_s=max(came), ended_s=clock,
                    site=f"train.py:{line} (step)",
                )  # fmt: skip

    (finding,) = find(build.session)

    assert finding.ranks == (1,)
    assert finding.advice == (
        "see what rank 1 does between train.py:4 (step) and train.py:5 (step)"
    )


def test_a_rank_that_waited_for_the_straggler_elsewhere_is_not_one() -> None:
    # Rank 1 waits for rank 0 in 'pair', and is late on 'others' for that alone.
    build = SessionBuilder(world_size=4)
    build.group("pair", (0, 1))
    build.group("others", (1, 2, 3))
    for step in range(40):
        at = step * 0.1
        build.op(
            0, "all_reduce", group="pair", at_s=at + 0.04, started_s=at + 0.04, ended_s=at + 0.041
        )
        build.op(1, "all_reduce", group="pair", at_s=at, started_s=at + 0.04, ended_s=at + 0.041)
        for rank in (1, 2, 3):
            came = at + (0.042 if rank == 1 else 0.001)
            build.op(
                rank,
                "all_reduce",
                group="others",
                at_s=came,
                started_s=at + 0.042,
                ended_s=at + 0.043,
            )

    (finding,) = find(build.session)

    assert finding.ranks == (0,)
    assert finding.group == "pair"


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("sigma", [0.05, 0.7])
def test_the_first_stage_of_a_pipeline_is_last_in_each_step_and_no_straggler(
    stages: int, sigma: float
) -> None:
    # Forwards go up the stages, gradients come down: rank 0 has the last word, and waited for it.
    build, noise = SessionBuilder(world_size=stages), random.Random(stages)
    clock = [0.0] * stages

    def message(sender: int, receiver: int) -> None:
        start = max(clock[sender], clock[receiver])
        for rank, kind in ((sender, "send"), (receiver, "recv")):
            peer = receiver if rank == sender else sender
            build.op(
                rank, kind, peer=peer, at_s=clock[rank], started_s=start, ended_s=start + 0.0003
            )
            clock[rank] = start + 0.0003

    for _ in range(20):
        for ms, stage_order, step in ((3, range(stages), 1), (6, reversed(range(stages)), -1)):
            order = list(stage_order)
            for _ in range(4):
                for rank in order:
                    clock[rank] += ms / 1000 * noise.lognormvariate(0, sigma)
                    if 0 <= rank + step < stages:
                        message(rank, rank + step)
        start = max(clock)
        for rank in range(stages):
            build.op(rank, "all_reduce", at_s=clock[rank], started_s=start, ended_s=start + 0.001)
        clock = [start + 0.001] * stages

    assert find(build.session) == []


def test_a_slow_transfer_is_nobodys_lateness() -> None:
    build = SessionBuilder(world_size=4)
    for step in range(40):
        for rank in range(4):
            at = step * 0.1
            build.op(rank, "all_reduce", at_s=at, started_s=at + 0.0001, ended_s=at + 0.09)

    assert find(build.session) == []


def test_lateness_that_goes_round_is_jitter() -> None:
    build = SessionBuilder(world_size=4)
    for step in range(80):
        for rank in range(4):
            late = 0.03 if step % 4 == rank else 0.0
            build.op(rank, "all_reduce", at_s=step * 0.1 + late, ended_s=step * 0.1 + 0.031)

    assert find(build.session) == []


def test_one_long_checkpoint_makes_no_straggler() -> None:
    build = SessionBuilder(world_size=4)
    for rank in range(4):
        clock = count(start=0, step=0.1)
        for step in range(40):
            at = next(clock) + 30.0 * (step >= 20)
            early = 30.0 if rank and step == 20 else 0.0
            build.op(rank, "all_reduce", at_s=at - early, started_s=at, ended_s=at + 0.01)

    assert find(build.session) == []


def test_a_millisecond_is_not_late() -> None:
    assert find(lockstep({2: 0.0009}).session) == []


def test_what_costs_little_of_the_time_is_not_worth_a_word() -> None:
    assert find(lockstep({2: 0.004}).session) == []


def test_few_ops_show_nothing() -> None:
    assert find(lockstep({2: 0.03}, ops=11).session) == []


def test_lateness_below_the_error_of_the_clocks_is_no_evidence() -> None:
    build = lockstep({2: 0.03, 3: 0.03})
    for rank, log in build.session.ranks.items():
        log.host, log.clock_error_ns = f"n{rank // 2}", 20_000_000

    assert find(build.session) == []


def test_without_comparable_clocks_the_common_start_is_the_measure() -> None:
    build = lockstep({2: 0.03})
    for rank, log in build.session.ranks.items():
        log.host = f"n{rank // 2}"
        log.offset_ns = rank * 10**9  # nonsense that nobody has estimated

    (finding,) = find(build.session)

    assert finding.ranks == (2,)


def test_clocks_that_are_known_are_used() -> None:
    build = lockstep({2: 0.03})
    for rank, log in build.session.ranks.items():
        log.host, log.clock_error_ns = f"n{rank}", 100_000
        log.offset_ns = rank * 10**9
        for column in (log.ops.issued_ns, log.ops.started_ns, log.ops.ended_ns):
            for at, time in enumerate(column):
                column[at] = time - log.offset_ns

    (finding,) = find(build.session)

    assert finding.ranks == (2,)


def test_when_all_ranks_of_a_host_are_late_the_host_is_named() -> None:
    build = lockstep({2: 0.03, 3: 0.032}, ranks=6)
    for rank, log in build.session.ranks.items():
        log.host, log.clock_error_ns = f"n{rank // 2}", 100_000

    (finding,) = find(build.session)

    assert finding.kind is FindingKind.SLOW_HOST
    assert finding.ranks == (2, 3)
    assert "host 'n1' is slow" in finding.what


def test_rings_that_begin_at_different_ops_are_compared_where_they_meet() -> None:
    build = lockstep({2: 0.03}, ops=60)
    ops = build.session.ranks[1].ops
    for name in ("number", "issued_ns", "started_ns", "ended_ns", "seq", "group", "kind", "flags"):
        del getattr(ops, name)[:20]
    for name in (
        "status",
        "peer",
        "source",
        "tag",
        "form",
        "stack",
        "thread",
        "fingerprint",
        "comm",
    ):
        del getattr(ops, name)[:20]

    (finding,) = find(build.session)

    assert finding.ranks == (2,)
    assert finding.numbers["times"] == 40


@pytest.mark.parametrize("noise", HEALTHY.values(), ids=HEALTHY)
@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_healthy_jobs_have_no_straggler(noise: Noise, ranks: int) -> None:
    session = play(noise, ranks=ranks, seed=ranks, hosts=2 if noise.skew_ns else 1)

    assert find(session) == []


@pytest.mark.parametrize("noise", [QUIET, HEALTHY["jitter"], HEALTHY["garbage collection"]])
@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_a_slow_rank_is_found_in_noise(noise: Noise, ranks: int) -> None:
    slow = ranks - 1

    found = find(play(noise, ranks=ranks, slow={slow: 2.5}, slow_from=15, seed=ranks))

    assert [finding.ranks for finding in found] == [(slow,)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 100, 10))
def test_in_many_healthy_jobs_nothing_is_found(seed: int) -> None:
    for each in range(seed, seed + 10):
        noise = list(HEALTHY.values())[each % len(HEALTHY)]
        session = play(
            noise,
            ranks=(2, 3, 4, 8, 16)[each % 5],
            width=1 if each % 5 < 2 else (2, 4)[each // 5 % 2],
            seed=each,
            hosts=2 if each % 7 == 0 and each % 5 > 1 else 1,
            clocks=each % 2 == 0,
        )
        assert not diagnose(session).has_faults, f"seed {each}"
