"""DistributedDataParallel for torch modules, over a distdbg group.

module.py   the module: forward, what is done with gradients, copies
autograd.py what autograd calls during a backward pass
arrays.py   tensors as a Reducer wants them
forwards.py which outputs of forward passes were reached by a backward pass
owed.py     what another backward pass has to bring before an optimizer steps
states.py   parameters and buffers of rank 0 to all ranks
joining.py  what a rank does in the passes of others when it has no batch left
logging_data.py    what a model and its reducer are, as torch's _get_ddp_logging_data() has it
absent.py   what is there where torch is not installed
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING or find_spec("torch") is not None:
    from distdbg.torch_bridge.data_parallel.module import DistributedDataParallel
else:
    from distdbg.torch_bridge.data_parallel.absent import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
