"""At DETAIL the ranks meet before the first op of an FSDP pass; those that follow as ever wait for nobody."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from begin import begin

from distdbg.errors import MismatchError

torch = pytest.importorskip("torch")
_VERSION = tuple(int(word) for word in torch.__version__.split("+")[0].split(".")[:2])
pytestmark = [
    pytest.mark.ranks,
    pytest.mark.slow,
    pytest.mark.skipif(_VERSION < (2, 7), reason="FSDP2 runs on a CPU from torch 2.7 on"),
]

#: The first pass names the units, the second one shows what follows what, the third one expects it.
_USUAL = 3


def model_of() -> Any:
    """Units 0 and 1 in a root without parameters of its own."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(2)])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(model: Any) -> None:
    model(torch.ones(2, 8)).sum().backward()


def around_the_second(before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call them around the gather of the second unit in a forward pass."""
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

    real: Any = FSDPParamGroup.unshard

    def unshard(unit: Any, *args: Any, **kwargs: Any) -> Any:
        is_second = str(unit._module_fqn) == "1" and not unit.is_unsharded
        if is_second:
            before()
        result = real(unit, *args, **kwargs)
        if is_second:
            after()
        return result

    FSDPParamGroup.unshard = unshard  # type: ignore[method-assign] # of these ranks alone


def one_rank_ahead() -> None:
    """Rank 1 gathers its second unit when rank 0 has started to do so."""
    dist = begin()
    from distdbg.torch_bridge.tap import lane

    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    is_late = False

    def before() -> None:
        if is_late and rank == 1:
            store.wait(["the second has started"], timedelta(seconds=30))

    def after() -> None:
        if is_late and rank == 0:
            store.set("the second has started", "")

    model = model_of()
    model._set_unshard_async_op(True)
    around_the_second(before, after)
    for _ in range(_USUAL):
        train(model)
    lane.MOMENT_NS = 120_000_000_000  # else a wait for the other rank gives up, and all goes on
    is_late = True
    train(model)
    dist.destroy_process_group()


def test_a_unit_after_the_first_waits_for_no_rank(watched: Callable[..., list[Any]]) -> None:
    watched(one_rank_ahead)


def another_op_between_units() -> str:
    """Rank 1 sums something where rank 0 gathers its second unit."""
    dist = begin()
    rank, differs = dist.get_rank(), False

    def before() -> None:
        if differs and rank == 1:
            dist.all_reduce(torch.ones(5))

    model = model_of()
    around_the_second(before, lambda: None)
    for _ in range(_USUAL):
        train(model)
    differs = True
    with pytest.raises(MismatchError) as raised:
        train(model)
    return str(raised.value)


def test_another_op_than_the_unit_that_was_foreseen_is_told_on_both_ranks(
    watched: Callable[..., list[Any]],
) -> None:
    for text in watched(another_op_between_units):
        assert "all_reduce" in text
        assert "(FSDP unit 1" in text
        here = re.escape(Path(__file__).name)
        assert re.search(rf"rank 0 called \S+ .* at \S*{here}:\d+ ", text)
        assert re.search(rf"rank 1 called all_reduce at \S*{here}:\d+ ", text)
        assert "the group is unusable" in text
        assert "still usable" not in text
