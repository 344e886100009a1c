"""The groups of a mesh: one for each line along each dimension, made in the same order by all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distdbg.errors import UsageError
from distdbg.runtime.api.subgroups import new_group
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.mesh.layout import MeshLayout

#: A backend, its options, or both.
Override = str | tuple[str | None, Any] | Any
Backends = tuple[str | None, Any]


def override_of(layout: MeshLayout, given: Mapping[int | str, Override]) -> list[Backends]:
    """The backend and the options of each dimension; None: those of the default group."""
    found: list[Backends] = [(None, None)] * len(layout.shape)
    seen: set[int] = set()
    for key, value in given.items():
        dim = layout.dim_of(key)
        if dim in seen:
            raise UsageError(f"backend_override has dimension {dim} twice")
        seen.add(dim)
        if isinstance(value, tuple):
            found[dim] = (value[0], value[1])
        else:
            found[dim] = (value, None) if isinstance(value, str) else (None, value)
    return found


def groups_of_dims(
    default: ProcessGroup, layout: MeshLayout, overrides: list[Backends]
) -> list[ProcessGroup]:
    """The groups of this rank, by dimension; [] for a rank that is not in the mesh."""
    made = [
        groups_of_lines(default, layout, dim, overrides[dim]) for dim in range(len(layout.shape))
    ]
    return [group for group in made if group is not None]


def groups_of_lines(
    default: ProcessGroup, layout: MeshLayout, dim: int, override: Backends
) -> ProcessGroup | None:
    """Make the groups along a dimension, and return this rank's; None: it is in none."""
    backend, options = override
    lines = layout.lines(dim)
    if override == (None, None) and len(lines) == 1 and lines[0] == list(default.ranks):
        return default
    name = str(dim) if layout.names is None else layout.names[dim]
    mine = None
    for line in lines:
        made = new_group(line, backend=backend, pg_options=options, group_desc=f"mesh_{name}")
        if isinstance(made, ProcessGroup):
            mine = made
    return mine
