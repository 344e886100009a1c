"""What is raised for an error of another backend, which may be of any class."""

from __future__ import annotations

from distdbg.errors import DistBackendError
from distdbg.ops.call import Call
from distdbg.ops.engine import Engine


def failed(engine: Engine, call: Call, error: Exception) -> DistBackendError:
    """What is raised for an error of the backend."""
    return DistBackendError(
        f"{call.kind.label} failed in {type(engine).__name__}: {type(error).__name__}: {error}".splitlines()[
            0
        ]
    )
