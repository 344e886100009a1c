"""Two models of one shape in one backward pass: a bucket has the name of its own model's, or none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from begin import begin

from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.session import Session
from distdbg.record.entries import MarkEntry
from distdbg.record.known_marks import NO_GRADIENT

torch: Any = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

#: DDP orders its buckets anew after the first pass.
_PASSES = 3


def model_of(name: str, made: list[str]) -> Any:
    """Two layers, and which of them got its gradient when."""
    from torch.nn.parallel import DistributedDataParallel

    model = torch.nn.Sequential()
    for at in range(2):
        layer = torch.nn.Linear(64, 64, bias=False)
        layer.weight.register_hook(lambda _, layer=f"{name}{at}": made.append(layer))
        model.add_module(f"{name}{at}", layer)
    return DistributedDataParallel(model, bucket_cap_mb=0.01)


def train_both(has_own_groups: bool) -> list[str]:
    dist = begin()
    from distdbg.torch_bridge.training import ddp

    if not has_own_groups:  # of reducers, which they have on gloo alone
        ddp.group_makers.clear()
    made: list[str] = []
    models = [model_of(name, made) for name in ("left", "right")]
    x = torch.ones(2, 64)
    for _ in range(_PASSES):
        made.clear()
        sum(model(x).sum() for model in models).backward()
    dist.destroy_process_group()
    return made


def buckets_of(session: Session, rank: int) -> list[str]:
    ops = session.ranks[rank].ops
    names = [session.comms[comm] for comm in ops.comm]
    return [name for name, kind in zip(names, ops.kind, strict=True) if kind == 1]


@pytest.mark.parametrize("level", ["info", "detail"])
def test_each_bucket_has_the_name_of_its_own_models(
    watched: Callable[..., list[Any]], tmp_path: Path, level: str
) -> None:
    made = watched(train_both, level, has_own_groups=True)
    session = load_run(tmp_path / "run")
    for rank in range(2):
        assert sorted(made[rank]) == ["left0", "left1", "right0", "right1"]
        expected = [f"DDP bucket {1 - int(name[-1])} of {name}.weight" for name in made[rank]]
        assert buckets_of(session, rank)[-4:] == expected


def test_where_no_reducer_says_which_model_it_is_of_a_bucket_has_no_name(
    watched: Callable[..., list[Any]], tmp_path: Path
) -> None:
    watched(train_both, "info", has_own_groups=False)
    session = load_run(tmp_path / "run")
    for rank in range(2):
        assert buckets_of(session, rank)[-4:] == [""] * 4
        names = [note.name for note in session.ranks[rank].notes if isinstance(note, MarkEntry)]
        assert not any(name.startswith(NO_GRADIENT) for name in names if name is not None)
