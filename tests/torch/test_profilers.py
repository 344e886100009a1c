"""Our ops as torch's profilers show them, in real ranks: a profiler is one of the process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from warm_ranks import run_warm_ranks

import distdbg as dist

if TYPE_CHECKING:
    from warm_python import WarmPython

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.ranks

PROFILERS = {
    "torch.profiler": torch.profiler.profile,
    "torch.autograd.profiler": torch.autograd.profiler.profile,
}
SHAPE = [4, 3]
FACTS = {
    "Collective name": "all_reduce",
    "Process Group Name": "0",
    "Process Group Description": "world",
    "Group size": 2,
    "bytes": 48,
}


def profile_ops(profiler: str) -> list[Any]:
    """What the profiler says of our ops; the first and the last are beyond its time."""
    dist.init_process_group()
    rank = dist.get_rank()
    x = torch.ones(SHAPE)
    every = [torch.zeros(SHAPE) for _ in range(2)]
    dist.all_reduce(x)
    with PROFILERS[profiler](record_shapes=True) as profile:
        dist.all_reduce(x)
        dist.all_gather(every, x)
        dist.barrier()
        (dist.recv if rank else dist.send)(x, 1 - rank)
        work = dist.all_reduce(x, async_op=True)
        torch.mul(x, 2, out=every[0])
        work.wait()
        with dist._coalescing_manager():
            dist.all_reduce(x)
            dist.all_reduce(every[0])
        with pytest.raises(dist.MismatchError):
            dist.all_reduce(x if rank else x[1:])
    dist.all_reduce(x)
    dist.destroy_process_group()
    events = profile.function_events if hasattr(profile, "function_events") else profile.events()
    return [
        [e.name, e.input_shapes, e.is_async, e.kwinputs, len(e.cpu_children)]
        for e in sorted(events, key=lambda event: event.time_range.start)
        if e.name.startswith("gloo:")
    ]


@pytest.mark.parametrize("profiler", PROFILERS)
def test_each_op_is_a_span_named_and_measured_as_torchs(
    profiler: str, warm_python: WarmPython, tmp_path: Path
) -> None:
    for rank, spans in enumerate(
        run_warm_ranks(warm_python, tmp_path, profile_ops, 2, profiler=profiler)
    ):
        names = ["all_reduce", "all_gather", "barrier", "recv" if rank else "send"]
        names += ["all_reduce"] * 4
        assert [span[0] for span in spans] == [f"gloo:{name}" for name in names]
        blocking, asynchronous = [*spans[:4], spans[-1]], spans[4:7]
        shapes = [shapes for _, shapes, *_ in blocking]
        assert shapes == [[SHAPE], [SHAPE], [], [SHAPE], [[4 - 1 + rank, 3]]]
        # The bytes come after the arrays, and have no shape.
        assert [span[1] for span in asynchronous] == [[SHAPE, []]] * 3
        assert [span[2] for span in spans] == [False] * 4 + [True] * 3 + [False]
        # What is computed beside an asynchronous op is not a part of it.
        assert [span[4] for span in asynchronous] == [0] * 3
        if profiler == "torch.profiler":
            assert spans[0][3] == FACTS
