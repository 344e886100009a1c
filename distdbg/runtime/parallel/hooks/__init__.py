"""Comm hooks: other ways than one all_reduce to make a bucket the average of all ranks.

deferred.py      Later: what a hook returns, done by whoever waits for it
allreduce.py     allreduce, fp16 and bf16, noop
power_sgd.py     low-rank matrices in place of gradients
quantization.py  one byte for each number
kinds.py         the enumerations by which torch names them

A hook is `hook(state, bucket)`; `state` is a group, None for the default one, or a PowerSGDState. It starts
its first ops and returns; what comes after them is done in wait(), which the reducer calls bucket by bucket.
So all ranks issue their ops in one order.
"""

from __future__ import annotations

from distdbg.runtime.parallel.hooks.allreduce import (
    allreduce_hook,
    bf16_compress_hook,
    fp16_compress_hook,
    noop_hook,
)
from distdbg.runtime.parallel.hooks.deferred import Later
from distdbg.runtime.parallel.hooks.kinds import (
    BuiltinCommHookType,
    DDPCommHookType,
    builtin_hook,
    register_ddp_comm_hook,
)
from distdbg.runtime.parallel.hooks.power_sgd import (
    PowerSGDState,
    batched_powerSGD_hook,
    powerSGD_hook,
)
from distdbg.runtime.parallel.hooks.quantization import (
    quantization_perchannel_hook,
    quantization_pertensor_hook,
)

__all__ = [
    "BuiltinCommHookType",
    "DDPCommHookType",
    "Later",
    "PowerSGDState",
    "allreduce_hook",
    "batched_powerSGD_hook",
    "bf16_compress_hook",
    "builtin_hook",
    "fp16_compress_hook",
    "noop_hook",
    "powerSGD_hook",
    "quantization_perchannel_hook",
    "quantization_pertensor_hook",
    "register_ddp_comm_hook",
]
