"""Which group serves which dimension of torch's DeviceMesh, as a mark in the record; once for each mesh."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from distdbg.record.known_marks import MESH
from distdbg.runtime.api.marks import mark
from distdbg.runtime.mesh.telling import words_of


def patch_mesh(kind: Any) -> None:
    """Patch torch's class DeviceMesh."""
    kind.__init__ = _telling(kind.__init__)


def _telling(real: Callable[..., Any]) -> Callable[..., Any]:
    told: set[str] = set()

    @wraps(real)
    def __init__(mesh: Any, /, *args: Any, **kwargs: Any) -> None:
        real(mesh, *args, **kwargs)
        words = words_of(mesh)
        if words and words not in told:
            told.add(words)
            mark(MESH + words)

    return __init__
