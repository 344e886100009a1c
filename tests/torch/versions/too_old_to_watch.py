"""With torch 2.4 and 2.5 a job is not watched: one warning, and it runs; see scripts/torch_versions.sh."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from distdbg.torch_bridge.hook import install


def test_one_warning_and_the_job_runs(tmp_path: Path) -> None:
    install()
    with pytest.warns(RuntimeWarning, match=r"does not watch this torch job: .* is too old"):
        dist.init_process_group(
            "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
        )
    x = torch.ones(2)
    dist.all_reduce(x)
    dist.destroy_process_group()
    assert x.tolist() == [1.0, 1.0]
