"""The words by which records and messages name what an op carries. Pure."""

from __future__ import annotations

from collections.abc import Sequence

#: A name is kept once in a record, whose strings have 256 KiB together.
MAX_NAME = 120
_MAX_LISTED = 300


def bucket_name(index: int, parameters: Sequence[str]) -> str:
    """'DDP bucket 3 of layer4', 'DDP bucket 0: fc.bias to conv1.weight', 'DDP bucket 3'."""
    head = f"DDP bucket {index}"
    if not parameters:
        return head
    shared = shared_module(parameters)
    if shared:
        return _short(f"{head} of {shared}")
    return _short(f"{head}: {parameters[0]} to {parameters[-1]}")


def shared_module(parameters: Sequence[str]) -> str:
    """The innermost module that all are in; of one parameter, itself; '' where it is the whole model."""
    parts = [name.split(".") for name in parameters]
    shared = parts[0]
    for other in parts[1:]:
        length = 0
        while length < min(len(shared), len(other)) and shared[length] == other[length]:
            length += 1
        shared = shared[:length]
    return ".".join(shared)


def unit_name(module: str | None, dimension: str = "") -> str:
    """'FSDP unit layers.0 over mesh dimension dp'; the root has no name of its own."""
    unit = f"FSDP unit {module}" if module else "FSDP root unit"
    return _short(f"{unit} over mesh dimension {dimension}" if dimension else unit)


def is_unit(name: str) -> bool:
    """Whether `unit_name` has made it."""
    return name.startswith(("FSDP unit ", "FSDP root unit"))


def list_names(names: Sequence[str]) -> str:
    """'fc2.weight, fc2.bias', as many as fit, and how many more there are."""
    text = ""
    for at, name in enumerate(names):
        added = f"{text}, {name}" if text else name
        if len(added) > _MAX_LISTED and text:
            return f"{text} and {len(names) - at} more"
        text = added
    return text


def _short(name: str) -> str:
    if len(name) <= MAX_NAME:
        return name
    half = (MAX_NAME - 3) // 2
    return f"{name[:half]}...{name[-half:]}"
