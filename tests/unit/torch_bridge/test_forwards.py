"""Which forward passes of a model were thrown away, and which outputs may still get a gradient."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from distdbg.runtime.parallel.reducer.counts import Counts  # noqa: E402
from distdbg.torch_bridge.data_parallel.forwards import Forwards  # noqa: E402

pytestmark = pytest.mark.slow  # needs torch


class Model:
    """Two outputs of one leaf, followed as the wrapper does it."""

    def __init__(self) -> None:
        self.forwards = Forwards()
        self.counts = Counts()
        self.leaf = torch.ones(2, requires_grad=True)
        self.is_training = True

    def __call__(self) -> tuple[object, object]:
        self.counts.forwards += 1
        return self.forward()

    def forward(self) -> tuple[object, object]:
        self.forwards.begin(self.is_training)
        outputs = self.leaf * 2, self.leaf * 3
        for one in outputs:
            self.forwards.follow(one, self.begin_backward)
        return outputs

    def begin_backward(self) -> None:
        self.forwards.go_backward(self.counts)


def test_a_call_from_the_same_lines_that_is_let_go_is_counted() -> None:
    model = Model()
    for step in range(3):
        first, second = model()
        if step == 2:
            (first.sum() + second.sum()).backward()
    assert model.counts.thrown_away == 2
    assert "test_forwards.py:" in model.counts.thrown_site
    assert model.counts.thrown_site.endswith("(Model.__call__)")
    assert not model.forwards.awaits_more
    model()  # from another line
    first, second = model()
    second.sum().backward()
    assert model.counts.thrown_away == 0
    assert model.forwards.awaits_more
    del first
    assert not model.forwards.awaits_more


def test_what_is_kept_used_or_evaluated_was_not_thrown_away() -> None:
    model = Model()
    kept = []
    for step in range(4):
        model.is_training = step != 1
        first, second = model()
        if step == 0:
            kept.append(first)
        if step == 2:
            second.sum().backward(retain_graph=True)
            assert model.counts.thrown_away == 0
            assert model.counts.forwards == 2  # not the one of step 1
            second.sum().backward(retain_graph=True)
            assert model.counts.forwards == 2
    second.sum().backward()
    assert model.counts.thrown_away == 0
