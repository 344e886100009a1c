"""The words for buckets and units, and which parameters got no gradient; by stand-ins for torch's objects."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from distdbg.runtime.parallel.reducer.names import (
    MAX_NAME,
    bucket_name,
    list_names,
    shared_module,
    unit_name,
)
from distdbg.torch_bridge.training import ddp
from distdbg.torch_bridge.training.ddp_model import Model
from distdbg.torch_bridge.training.passes import TrainingSteps


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ([], "DDP bucket 3"),
        (["fc.weight"], "DDP bucket 3 of fc.weight"),
        (["layer4.0.conv.weight", "layer4.1.bn.bias"], "DDP bucket 3 of layer4"),
        (["fc.bias", "fc2.bias", "conv1.weight"], "DDP bucket 3: fc.bias to conv1.weight"),
    ],
)
def test_a_bucket_is_named_by_what_it_holds(parameters: list[str], name: str) -> None:
    assert bucket_name(3, parameters) == name


def test_modules_that_begin_alike_are_not_one() -> None:
    assert shared_module(["layer1.weight", "layer10.weight"]) == ""
    assert shared_module(["a.b.c", "a.b"]) == "a.b"


def test_a_unit_has_its_module_and_the_dimension_that_it_is_cut_along() -> None:
    assert unit_name("layers.0", "dp") == "FSDP unit layers.0 over mesh dimension dp"
    assert unit_name("", "") == unit_name(None) == "FSDP root unit"


def test_long_names_keep_both_ends() -> None:
    name = bucket_name(0, ["first." + "x" * 200 + ".weight", "last." + "y" * 200 + ".weight"])
    assert len(name) <= MAX_NAME
    assert name.startswith("DDP bucket 0: first")
    assert name.endswith("y.weight")


def test_a_list_of_names_says_how_many_more_there_are() -> None:
    assert list_names(["a", "b"]) == "a, b"
    text = list_names([f"layers.{n}.weight" for n in range(100)])
    assert text.endswith("more")
    assert int(text.split()[-2]) + text.count("layers") == 100
    assert list_names(["x" * 400]) == "x" * 400


class Parameter:
    def __init__(self, count: int) -> None:
        self.count = count
        self.grad: Any = None

    def numel(self) -> int:
        return self.count

    def element_size(self) -> int:
        return 4


class Ddp:
    """What a Model asks of one."""

    _has_rebuilt_buckets = False

    def __init__(self, **parameters: int) -> None:
        self.process_group = SimpleNamespace(group_name="0")
        self.named = {name: Parameter(count) for name, count in parameters.items()}
        self.module = SimpleNamespace(named_parameters=self.named.items)


def model_of(ddp: Ddp, *buckets: list[int]) -> Model:
    return Model(ddp, list(ddp.named.values()), buckets)


def test_buckets_are_told_by_their_order_and_size() -> None:
    ddp = Ddp(a=4, b=4, c=2)
    model = model_of(ddp, [2], [0, 1])
    model.begin(ddp)
    assert model.next_name(8) == "DDP bucket 1: a to b"  # the first was left out
    model.begin(ddp)
    assert model.next_name(5) == ""
    assert model.next_name(2) == "DDP bucket 0 of c"
    assert not model.is_complete
    assert model.next_name(2) == ""
    assert model.next_name(8) == "DDP bucket 1: a to b"
    assert model.is_complete


def test_a_parameter_without_a_gradient_or_with_an_old_one_was_not_used() -> None:
    ddp = Ddp(a=1, b=1, c=1)
    model = model_of(ddp, [0, 1, 2])
    ddp.named["b"].grad = SimpleNamespace(_version=3)
    ddp.named["c"].grad = SimpleNamespace(_version=3)
    model.before_backward()
    ddp.named["c"].grad._version = 4
    assert model.without_gradient() == ["a", "b"]


def test_what_a_pass_gave_a_gradient_is_known_also_where_there_was_one() -> None:
    ddp = Ddp(a=1, b=1, c=1)
    model = model_of(ddp, [0, 1, 2])
    ddp.named["b"].grad = SimpleNamespace(_version=3)
    model.before_backward()
    assert [*model.with_gradient()] == []
    ddp.named["a"].grad = SimpleNamespace(_version=0)
    ddp.named["b"].grad._version = 4
    assert [*model.with_gradient()] == ["a", "b"]


def test_a_pass_that_is_not_of_this_model_leaves_nothing_out() -> None:
    ddp = Ddp(a=1, b=1)
    model = model_of(ddp, [0, 1])
    model.before_backward()
    assert model.without_gradient() == []


def test_buckets_that_were_ordered_anew_have_numbers_until_ddp_says_more() -> None:
    ddp = Ddp(a=1 << 26, b=1)
    model = model_of(ddp, [0, 1])
    text = ""
    data: Any = SimpleNamespace(strs_map={})
    ddp.logger = SimpleNamespace(_get_ddp_logging_data=lambda: data)  # type: ignore[attr-defined]
    ddp._has_rebuilt_buckets = True
    model.begin(ddp)
    assert model.next_name(1) == "DDP bucket 0"
    assert model.next_name(1 << 26) == "DDP bucket 1"
    assert model.is_complete
    text = "1, 0"
    data.strs_map["rebuilt_per_bucket_param_indices"] = text
    model.begin(ddp)
    assert model.next_name(1) == "DDP bucket 0 of b"


def test_a_step_is_an_optimizers_after_a_backward_pass() -> None:
    steps = TrainingSteps()
    passes: list[str] = []
    steps.before_backward.append(lambda: passes.append("before"))
    steps.after_backward.append(lambda is_well: passes.append(f"after {is_well}"))
    backward = steps.wrap_backward(lambda **_: passes.append("runs"))
    steps.begin_optimizer()
    steps.end_optimizer()
    assert steps.done == 0
    backward(accumulate_grad=True)
    steps.begin_optimizer()
    steps.begin_optimizer()  # one that calls another
    steps.end_optimizer()
    assert steps.done == 0
    steps.end_optimizer()
    assert (steps.done, steps.current) == (1, 2)
    assert passes == ["before", "runs", "after True"]
    backward(accumulate_grad=False)
    assert passes[-1] == "runs"


@pytest.fixture
def armed() -> Iterator[list[Model]]:
    """The models that a backward pass reduces."""
    yield ddp.armed
    ddp.armed.clear()


def test_an_op_that_may_be_a_bucket_of_two_models_has_no_name(armed: list[Model]) -> None:
    left, right = Ddp(a=4, b=2), Ddp(c=4, d=1)
    models = [model_of(one, [0], [1]) for one in (left, right)]
    for one, model in zip((left, right), models, strict=True):
        model.begin(one)
        model.before_backward()
    armed[:] = models
    assert ddp.bucket_of("0", 4) == ""
    assert ddp.bucket_of("0", 2) == ""  # of the first one, whose place is not known
    assert all(model.is_complete for model in models)
    left.named["a"].grad = SimpleNamespace(_version=0)
    assert not models[0].is_complete  # b got none
    models[0].begin(left)
    armed[:] = models[:1]
    assert ddp.bucket_of("0", 4) == "DDP bucket 0 of a"


def test_an_op_of_a_reducer_that_tells_its_model_is_nobody_elses(armed: list[Model]) -> None:
    left, right = Ddp(a=4), Ddp(c=4)
    models = [model_of(one, [0]) for one in (left, right)]
    for one, model in zip((left, right), models, strict=True):
        model.begin(one)
        model.is_reported = True
    armed[:] = models
    assert ddp.bucket_of("0", 4) == ""  # an op of the program's own
    ddp.reducing.model = models[1]
    assert ddp.bucket_of("0", 4) == "DDP bucket 0 of c"
    ddp.reducing.model = None
    assert [model.is_complete for model in models] == [False, True]
