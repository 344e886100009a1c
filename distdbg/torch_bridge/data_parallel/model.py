"""What a torch module is to DistributedDataParallel: its group, parameters, states and outputs."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from distdbg.errors import UsageError, WrongTypeError
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_argument import resolve
from distdbg.runtime.mesh import DeviceMesh
from distdbg.runtime.parallel.reducer.bucket import GradBucket


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
    """Describe all that ranks must have alike: its name, and its form in words."""
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


def group_of(process_group: Any, device_mesh: DeviceMesh | None) -> ProcessGroup:
    """Return the group that the arguments name."""
    if process_group is not None and device_mesh is not None:
        raise UsageError("DistributedDataParallel: give process_group or device_mesh, not both")
    if device_mesh is not None:
        if device_mesh.ndim != 1:
            raise UsageError(
                f"DistributedDataParallel: device_mesh has {device_mesh.ndim} dimensions; give one "
                "of them, such as device_mesh['dp']"
            )
        process_group = device_mesh.get_group()
    group = resolve(process_group, "DistributedDataParallel")
    if group is None:
        raise UsageError("DistributedDataParallel: this rank is not in the given group")
    return group


def check_hook(hook: Any) -> None:
    """UsageError unless it can be a comm hook."""
    if not callable(hook):
        raise WrongTypeError("register_comm_hook: the hook must be callable")
    parameters = inspect.signature(hook).parameters
    expected = parameters.get("bucket")
    # A hook that was written for torch has its class.
    of_torch = getattr(torch.distributed, "GradBucket", GradBucket)
    wanted = (inspect.Parameter.empty, GradBucket, of_torch)
    if expected is None or (
        isinstance(expected.annotation, type) and expected.annotation not in wanted
    ):
        raise UsageError(
            "register_comm_hook: a hook has the parameters state and bucket, a GradBucket, "
            f"not ({', '.join(map(str, parameters.values()))})"
        )


def tensors_in(output: Any) -> Iterator[Any]:
    """All tensors in what a module returned."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from tensors_in(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from tensors_in(value)
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        for one in dataclasses.fields(output):
            yield from tensors_in(getattr(output, one.name))
