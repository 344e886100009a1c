"""The checks that every process group passes, under torch.distributed: on our backend, on watched gloo."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from warm_ranks import run_warm_ranks

if TYPE_CHECKING:
    from warm_python import WarmPython

torch: Any = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]


def check_all(backend: str) -> dict[str, str]:
    from distdbg.testing.conformance.group import Api, run_checks

    if backend == "gloo":
        from distdbg.torch_bridge.hook import install

        install()
    dist = torch.distributed
    dist.init_process_group(
        backend,
        init_method=f"file://{os.environ['TORCH_FILE']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )

    def array(values: list[float], dtype: str) -> Any:
        return torch.tensor(values, dtype=getattr(torch, dtype))

    failures = run_checks(Api(dist, array, torch.Tensor.tolist))
    dist.destroy_process_group()
    return failures


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("backend", ["distdbg", "gloo"])
def test_every_check_passes(
    backend: str, size: int, warm_python: WarmPython, tmp_path: Path
) -> None:
    env = {
        "TORCH_FILE": os.fspath(tmp_path / "torch-store"),
        "DISTDBG_RUN_DIR": os.fspath(tmp_path / "run"),
    }
    found = run_warm_ranks(warm_python, tmp_path, check_all, size, env=env, backend=backend)
    assert found == [{}] * size
