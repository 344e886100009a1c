"""What a torch module is to DistributedDataParallel: its parameters, its states, and their forms in words."""

from __future__ import annotations

from typing import Any

import torch

from distdbg.errors import UsageError, WrongTypeError


def parameters_of(module: Any, ignored: set[str]) -> dict[str, Any]:
    """Those that have gradients, by name; one that several modules share has its first name."""
    if not isinstance(module, torch.nn.Module):
        raise WrongTypeError(
            f"DistributedDataParallel wraps a torch module, not {type(module).__name__}"
        )
    found = {}
    for name, value in module.named_parameters():
        if not value.requires_grad or name in ignored:
            continue
        if isinstance(value, torch.nn.parameter.UninitializedParameter):
            raise UsageError(
                f"DistributedDataParallel: {name} has no shape yet",
                hint="run the module once before it is wrapped",
            )
        found[name] = value
    if not found:
        raise UsageError("DistributedDataParallel: the module has no parameter with a gradient")
    for name, part in module.named_modules():
        kinds = torch.nn.Embedding, torch.nn.EmbeddingBag
        if isinstance(part, kinds) and part.sparse and f"{name}.weight".lstrip(".") in found:
            raise UsageError(
                f"DistributedDataParallel: the gradient of {name}.weight is sparse; only dense ones "
                "are reduced",
                hint="make the layer with sparse=False",
            )
    return found


def states_of(module: Any, ignored: set[str], with_buffers: bool) -> dict[str, Any]:
    """All that ranks shall have alike, by name."""
    found = {name: value.detach() for name, value in module.named_parameters()}
    if with_buffers:
        found |= {name: value.detach() for name, value in module.named_buffers()}
    return {name: value for name, value in found.items() if name not in ignored}


def described(module: Any, ignored: set[str], with_buffers: bool) -> tuple[tuple[str, str], ...]:
    """Of all that ranks must have alike: its name, and its form in words."""
    found = [
        (name, _form(value) if value.requires_grad else f"{_form(value)} without gradient")
        for name, value in module.named_parameters()
    ]
    if with_buffers:
        found += [(name, f"buffer {_form(value)}") for name, value in module.named_buffers()]
    return tuple((name, form) for name, form in found if name not in ignored)


def _form(value: Any) -> str:
    if torch.nn.parameter.is_lazy(value):
        return "no shape yet"
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype}[{','.join(map(str, value.shape))}]"
