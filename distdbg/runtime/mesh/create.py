"""init_device_mesh: a mesh of the first ranks, in ascending order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from distdbg.errors import UsageError
from distdbg.runtime.api.integers import to_ints
from distdbg.runtime.mesh.device_mesh import DeviceMesh, check_device_type
from distdbg.runtime.mesh.groups import Override
from distdbg.runtime.mesh.layout import check_names
from distdbg.runtime.process.init import init_process_group, is_initialized
from distdbg.runtime.process.world import current


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Mapping[int | str, Override] | None = None,
) -> DeviceMesh:
    """Make a mesh of the ranks 0, 1, 2 ... in this shape; all ranks call it with the same arguments.

    Without a default group, init_process_group() is called first.
    """
    check_device_type(device_type)
    shape = tuple(to_ints("init_device_mesh", "mesh_shape", mesh_shape))
    if not shape or min(shape) < 1:
        raise UsageError(f"init_device_mesh: mesh_shape must be positive numbers, got {shape}")
    if mesh_dim_names is not None:
        check_names(mesh_dim_names, len(shape))
    if not is_initialized():
        init_process_group()
    count, size = math.prod(shape), current().require_default().size()
    if count > size:
        raise UsageError(
            f"init_device_mesh: a mesh of {count} ranks {shape} is larger than the world of {size}"
        )
    return DeviceMesh(
        device_type,
        np.arange(count).reshape(shape),
        mesh_dim_names=mesh_dim_names,
        backend_override=backend_override,
    )
