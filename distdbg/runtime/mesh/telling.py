"""Records which group serves which dimension of a mesh, as a mark; also for torch's meshes.

A mesh of one dimension over all ranks has no group of its own: it takes the default group, whose name
says nothing of it.
"""

from __future__ import annotations

from typing import Any

from distdbg.record.known_marks import MESH
from distdbg.runtime.api.marks import mark


def tell_mesh(mesh: Any) -> None:
    """Write the mark, where the dimensions have names and this rank is in their groups."""
    words = words_of(mesh)
    if words:
        mark(MESH + words)


def words_of(mesh: Any) -> str:
    """'dp (2) on group 'mesh_dp', tp (4) on group 'mesh_tp''; '' where dimensions have no names."""
    names = mesh.mesh_dim_names
    if not names:
        return ""
    try:
        groups = [mesh.get_group(at) for at in range(len(names))]
        sizes = [mesh.size(at) for at in range(len(names))]
    except Exception:  # noqa: BLE001 - a mesh without groups of its own, or of one rank that is not in it
        return ""
    return ", ".join(
        f"{name} ({size}) on group '{_label(group)}'"
        for name, size, group in zip(names, sizes, groups, strict=True)
    )


def _label(group: Any) -> str:
    desc = group.group_desc
    return "world" if desc in ("default_pg", "") else str(desc)
