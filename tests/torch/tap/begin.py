"""How the ranks of these tests begin: torch on gloo, watched."""

from __future__ import annotations

import os
from typing import Any


def begin() -> Any:
    from distdbg.torch_bridge.hook import install

    install()
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['TORCH_FILE']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    return dist
