"""With a torch older than 2.4 the backend says so; run by scripts/torch_versions.sh alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from distdbg.errors import ConfigError
from distdbg.torch_bridge import register


def test_the_backend_says_that_torch_is_too_old(tmp_path: Path) -> None:
    register()
    with pytest.raises((ConfigError, RuntimeError), match="is too old"):
        dist.init_process_group(
            "distdbg", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
        )
