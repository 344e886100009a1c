"""Which numbers the head keeps: as the sampler says of each by itself."""

from __future__ import annotations

import random

import pytest

from distdbg.export.otel.ids import COLLECTIVE, Numbering
from distdbg.export.otel.sampling import ALL, Sampler
from distdbg.export.tracing.head import Head
from distdbg.export.tracing.tail import TailSampler


@pytest.mark.parametrize("bound", [None, 0, ALL, ALL // 3, ALL // 100])
def test_whatever_order_ranks_ask_in_the_answer_is_the_sampler_s(bound: int | None) -> None:
    sampler = Sampler(bound)
    head = Head("r", 0, sampler)
    numbering = Numbering("r", 0, "dp", COLLECTIVE)
    rng = random.Random(3)
    low = 1
    for _ in range(40):
        start = max(1, low + rng.randrange(-2000, 3000))
        high = start + rng.randrange(1, 1500)
        wanted = [s for s in range(start, high) if sampler.keeps(numbering.trace_id(s), s)]
        assert list(head.kept("dp", start, high)) == wanted
        low = high if rng.random() < 0.9 else high + 100_000


def test_the_tail_forgets_the_oldest_and_tells_what_is_new_once() -> None:
    tail = TailSampler()
    tail.add("dp", 5, "slow")
    tail.add("dp", 5, "failed")
    assert tail.why("dp", 5) == "slow"
    assert tail.take_new() == [("dp", 5)]
    assert tail.take_new() == []
    for seq in range(10, 5000):
        tail.add("tp", seq, "slow")
    assert tail.why("dp", 5) == ""
    assert tail.of("dp") == set()
    assert len(tail.of("tp")) <= 4096
