"""The enumerations by which torch names its hooks."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, member
from functools import partial
from typing import Any, Protocol

from distdbg.runtime.parallel.hooks.allreduce import (
    allreduce_hook,
    bf16_compress_hook,
    fp16_compress_hook,
    noop_hook,
)
from distdbg.runtime.parallel.hooks.deferred import Later
from distdbg.runtime.parallel.hooks.power_sgd import (
    PowerSGDState,
    batched_powerSGD_hook,
    powerSGD_hook,
)
from distdbg.runtime.parallel.hooks.quantization import (
    quantization_perchannel_hook,
    quantization_pertensor_hook,
)
from distdbg.runtime.parallel.reducer.bucket import GradBucket

Hook = Callable[[Any, GradBucket], Later]


class Hookable(Protocol):
    """A model, or whatever reduces gradients."""

    def register_comm_hook(self, state: object, hook: Hook) -> None:
        """Reduce buckets by this hook."""
        ...


def _register(hook: Hook, model: Hookable, state: object = None) -> None:
    model.register_comm_hook(state, hook)


def _register_power_sgd(
    hook: Hook,
    model: Hookable,
    state: Any = None,
    matrix_approximation_rank: int = 1,
    start_powerSGD_iter: int = 1_000,
) -> None:
    """`state` is the group, as with the other hooks."""
    options = PowerSGDState(
        process_group=state,
        matrix_approximation_rank=matrix_approximation_rank,
        start_powerSGD_iter=start_powerSGD_iter,
    )
    model.register_comm_hook(options, hook)


class DDPCommHookType(Enum):
    """The hooks by name; the value registers one: `DDPCommHookType.NOOP.value(model=model, state=None)`."""

    ALLREDUCE = member(partial(_register, allreduce_hook))
    FP16_COMPRESS = member(partial(_register, fp16_compress_hook))
    BF16_COMPRESS = member(partial(_register, bf16_compress_hook))
    QUANTIZE_PER_TENSOR = member(partial(_register, quantization_pertensor_hook))
    QUANTIZE_PER_CHANNEL = member(partial(_register, quantization_perchannel_hook))
    POWER_SGD = member(partial(_register_power_sgd, powerSGD_hook))
    POWER_SGD_RANK2 = member(
        partial(_register_power_sgd, powerSGD_hook, matrix_approximation_rank=2)
    )
    BATCHED_POWER_SGD = member(partial(_register_power_sgd, batched_powerSGD_hook))
    BATCHED_POWER_SGD_RANK2 = member(
        partial(_register_power_sgd, batched_powerSGD_hook, matrix_approximation_rank=2)
    )
    NOOP = member(partial(_register, noop_hook))


def register_ddp_comm_hook(
    comm_hook_type: DDPCommHookType, model: Hookable, state: object = None
) -> None:
    """Reduce the gradients of a model by one of the hooks; `state` is a group, None the default one."""
    comm_hook_type.value(model=model, state=state)


class BuiltinCommHookType(Enum):
    """The hooks that torch has in C++; here they are those of Python."""

    ALLREDUCE = 0
    FP16_COMPRESS = 1


def builtin_hook(kind: BuiltinCommHookType) -> Hook:
    """Return the hook of this name."""
    match kind:
        case BuiltinCommHookType.ALLREDUCE:
            return allreduce_hook
        case BuiltinCommHookType.FP16_COMPRESS:
            return fp16_compress_hook
