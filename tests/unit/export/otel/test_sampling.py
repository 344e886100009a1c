"""Which ops are kept: the same on all hosts, and no more than an agent may send."""

from __future__ import annotations

import random

import pytest
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from distdbg.export.otel.ids import Numbering
from distdbg.export.otel.sampling import (
    ALL,
    FULL,
    MAX_STRIDE,
    Budget,
    SamplingDecision,
    is_kept_number,
    is_remarkable,
    read_sampler,
    stride_at,
)

S = 10**9


def takes(budget: Budget, trace_id: int, bound: int = ALL, cost: int = 1) -> bool:
    return budget.decide(trace_id, bound, cost) is SamplingDecision.TAKEN


def test_a_ratio_decides_as_the_sdk_does() -> None:
    sampler, wrong = read_sampler(
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
    )
    theirs = TraceIdRatioBased(0.25)
    numbering = Numbering("r", 0, "dp", "collective")
    ids = [numbering.trace_id(seq) for seq in range(2000)]
    kept = [sampler.keeps(trace_id, 1) for trace_id in ids]
    assert kept == [
        theirs.should_sample(None, trace_id, "").decision.is_sampled() for trace_id in ids
    ]
    assert 400 < sum(kept) < 600
    assert wrong == ""


@pytest.mark.parametrize(
    ("name", "keeps", "keeps_unsampled_child"),
    [
        ("always_on", True, True),
        ("always_off", False, False),
        ("parentbased_always_on", True, False),
        ("parentbased_always_off", False, False),
        ("", True, False),
    ],
)
def test_samplers_by_name(name: str, keeps: bool, keeps_unsampled_child: bool) -> None:
    sampler, wrong = read_sampler({"OTEL_TRACES_SAMPLER": name})
    assert wrong == ""
    assert sampler.keeps(ALL - 1, 1) == keeps
    assert sampler.keeps_child(ALL - 1, False) == keeps_unsampled_child
    if name.startswith("parentbased"):
        assert sampler.keeps_child(ALL - 1, True)


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_TRACES_SAMPLER": "jaeger_remote"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "two"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.5"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "nan"},
    ],
)
def test_what_does_not_fit_is_said_and_passed_over(environ: dict[str, str]) -> None:
    sampler, wrong = read_sampler(environ)
    assert wrong
    assert sampler.keeps(1, 1)


def test_numbers_are_thinned_out_and_never_stop() -> None:
    assert all(is_kept_number(seq) for seq in range(1, FULL + 1))
    assert stride_at(FULL + 1) == 2
    assert stride_at(2 * FULL + 1) == 4
    assert stride_at(10**12) == MAX_STRIDE
    kept = sum(is_kept_number(seq) for seq in range(1, 1_000_001))
    assert kept < 10 * FULL
    assert any(is_kept_number(seq) for seq in range(10**9, 10**9 + MAX_STRIDE))


def test_the_tail_keeps_what_failed_or_was_slow() -> None:
    assert is_remarkable(status=2, took_ns=1, slow_ns=S)
    assert is_remarkable(status=0, took_ns=S, slow_ns=S)
    assert not is_remarkable(status=0, took_ns=S - 1, slow_ns=S)
    assert not is_remarkable(status=None, took_ns=S, slow_ns=0)


def test_a_budget_decides_once_for_a_trace_and_holds() -> None:
    rng = random.Random(7)
    budget = Budget(100, 0)
    sent = 0
    for tick in range(1, 101):
        budget.tick(tick * S // 10)
        for _ in range(500):
            trace_id = rng.getrandbits(128)
            ranks = [takes(budget, trace_id, cost=4) for _ in range(4)]
            assert len(set(ranks)) == 1
            sent += sum(ranks)
    assert 300 < sent < 2500  # 100 a second for 10 s, and what it takes to learn it


def test_what_two_hosts_keep_under_a_budget_is_nested() -> None:
    rng = random.Random(7)
    ids = [rng.getrandbits(128) for _ in range(20_000)]
    kept = []
    for rate in (50, 400):
        budget = Budget(rate, 0)
        for at, trace_id in enumerate(ids):
            if at % 100 == 0:
                budget.tick(at * S // 2000)
            if takes(budget, trace_id) and at > 10_000:
                kept.append((rate, trace_id))
    small = {one for rate, one in kept if rate == 50}
    large = {one for rate, one in kept if rate == 400}
    assert small
    assert len(small - large) <= len(small) // 4


def test_a_budget_that_is_not_used_any_more_lets_everything_pass_again() -> None:
    budget = Budget(10, 0)
    for trace_id in range(1000):
        takes(budget, trace_id << 40)
    assert budget.level > 0
    for tick in range(1, 100):
        budget.tick(tick * S)
    assert budget.level == 0


def test_a_budget_thins_out_what_a_ratio_has_kept() -> None:
    rng = random.Random(1)
    bound = ALL // 100
    budget = Budget(10, 0)
    taken = sum(takes(budget, rng.randrange(bound), bound) for _ in range(2000))
    assert 10 <= taken < 200
