"""How the ranks of these tests begin: torch on gloo, watched."""

from __future__ import annotations

import os
from typing import Any

#: Functions by the names of torch 2.13, and what older ones call them.
_NAMES = {
    "all_gather_single": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
}


def treat_engines_as(**traits: Any) -> None:
    """From now on engines of torch's groups say this of themselves, whatever backend they have."""
    from distdbg.torch_bridge.tap.engine import TorchEngine

    real = TorchEngine.__init__

    def init(engine: TorchEngine, *args: Any) -> None:
        real(engine, *args)
        for name, value in traits.items():
            setattr(engine, name, value)

    TorchEngine.__init__ = init  # type: ignore[method-assign]  # in a process of its own


def begin(backend: str = "gloo") -> Any:
    from distdbg.torch_bridge.hook import install

    install()
    import torch.distributed as dist

    dist.init_process_group(
        backend,
        init_method=f"file://{os.environ['TORCH_FILE']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    for name, before in _NAMES.items():
        if not hasattr(dist, name):
            setattr(dist, name, getattr(dist, before))
    return dist
