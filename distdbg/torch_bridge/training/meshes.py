"""Which group serves which dimension of a DeviceMesh, as a mark in the record.

A mesh of one dimension over all ranks has no group of its own: it takes the default group, whose name
says nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from distdbg.record.known_marks import MESH
from distdbg.runtime.marks import mark


def patch_mesh(kind: Any) -> None:
    """Patch torch's class DeviceMesh."""
    kind.__init__ = _telling(kind.__init__)


def _telling(real: Callable[..., Any]) -> Callable[..., Any]:
    told: set[str] = set()

    @wraps(real)
    def __init__(mesh: Any, *args: Any, **kwargs: Any) -> None:
        real(mesh, *args, **kwargs)
        words = _words(mesh)
        if words and words not in told:
            told.add(words)
            mark(MESH + words)

    return __init__


def _words(mesh: Any) -> str:
    """'dp (2) on group 'mesh_dp', tp (4) on group 'mesh_tp''; '' where dimensions have no names."""
    names = getattr(mesh, "mesh_dim_names", None)
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
