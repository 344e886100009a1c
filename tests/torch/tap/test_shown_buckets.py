"""Buckets pass torch's dispatcher by while nobody looks there; who does look sees each of them."""

from __future__ import annotations

import gc
import json
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from begin import begin

torch: Any = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

#: DDP orders its buckets anew after the first pass.
_USUAL = 3
_BUCKETS = 3
_PATIENCE_S = 10.0
#: A few rounds of the thread that looks after ops.
_LOOK_S = 0.5
_OP = "c10d::allreduce_"


def trained() -> Callable[[], None]:
    """A pass of a model with so many buckets, some of which were made."""
    from torch.nn.parallel import DistributedDataParallel

    layers = [torch.nn.Linear(64, 64, bias=False) for _ in range(_BUCKETS)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)

    def train() -> None:
        model(torch.ones(2, 64)).sum().backward()

    for _ in range(_USUAL):
        train()
    return train


def profiled() -> list[int]:
    dist = begin()
    train = trained()
    with torch.profiler.profile() as profile:
        train()
    train()
    with torch.autograd.profiler.profile() as older:
        train()
    dist.destroy_process_group()
    return [count(profile.events()), count(older.function_events)]


def count(events: Any) -> int:
    return sum(event.name == _OP for event in events)


def test_a_profiler_of_torchs_sees_each_bucket(watched: Callable[..., list[Any]]) -> None:
    assert watched(profiled) == [[_BUCKETS, _BUCKETS]] * 2


def await_end_of_gloo_threads() -> None:
    """They end with their group; one that was joined is listed for a moment more."""
    deadline = time.monotonic() + _PATIENCE_S
    while any(map(_is_of_gloo, Path("/proc/self/task").iterdir())):
        assert time.monotonic() < deadline, "gloo's threads have not ended"
        time.sleep(0.01)  # nothing announces the end of a thread of C++


def _is_of_gloo(task: Path) -> bool:
    with suppress(OSError):  # it has ended meanwhile
        return (task / "comm").read_text().startswith("pt_gloo")
    return False


def freed() -> list[bool]:
    dist = begin()
    parameters = []

    def use() -> None:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        parameters.extend(weakref.ref(each) for each in model.parameters())
        model(torch.ones(2, 4)).sum().backward()
        model(torch.ones(2, 4))

    use()
    time.sleep(_LOOK_S)  # who looks after the group has done so, and keeps nothing of it
    gc.collect()
    is_freed = [each() is None for each in parameters]
    dist.destroy_process_group()
    gc.collect()
    await_end_of_gloo_threads()
    return is_freed


def test_a_model_and_its_group_are_freed_when_the_program_drops_them(
    watched: Callable[..., list[Any]],
) -> None:
    assert watched(freed) == [[True, True]] * 2


def traced(folder: str) -> int:
    dist = begin()
    train = trained()
    path = Path(folder) / f"{dist.get_rank()}.json"
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
    observer.start()
    train()
    observer.stop()
    # A thread of gloo's ends its op's trace after the op, and torch does not wait for that where it
    # frees the observer: it crashes. The group's threads end with the group, which DDP holds.
    dist.destroy_process_group()
    del train
    gc.collect()
    await_end_of_gloo_threads()
    observer.unregister_callback()
    nodes = json.loads(path.read_text())["nodes"]
    return sum(node["name"] == _OP for node in nodes)


def test_an_execution_trace_has_each_bucket(
    watched: Callable[..., list[Any]], tmp_path: Path
) -> None:
    assert watched(traced, folder=str(tmp_path)) == [_BUCKETS] * 2


def moded() -> list[str]:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, op: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(op.name())
            return op(*args, **kwargs or {})

    dist = begin()
    train = trained()
    with Mode():
        train()
    dist.destroy_process_group()
    return [name for name in seen if name == _OP]


def test_a_dispatch_mode_sees_each_bucket(watched: Callable[..., list[Any]]) -> None:
    assert watched(moded) == [[_OP] * _BUCKETS] * 2
