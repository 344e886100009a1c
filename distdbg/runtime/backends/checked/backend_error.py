"""What is raised for an error of another backend, which may be of any class."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from distdbg.errors import DistBackendError, DistError
from distdbg.ops.call import Call
from distdbg.ops.engine import Engine

if TYPE_CHECKING:
    from distdbg.runtime.backends.checked.checked_pending import OpWatch, PendingChecks


def failed(engine: Engine, call: Call, error: Exception) -> DistBackendError:
    """What is raised for an error of the backend."""
    return DistBackendError(
        f"{call.kind.label} failed in {type(engine).__name__}: {type(error).__name__}: {error}".splitlines()[
            0
        ]
    )


def raise_better(engine: PendingChecks, error: Exception, watch: OpWatch) -> NoReturn:
    """What ended an op of the backend: ours as it is, an error of the backend or what explains it."""
    if isinstance(error, DistError) and not isinstance(error, DistBackendError):
        raise error
    engine.explain(error, watch)
    if isinstance(error, DistError):
        raise error
    raise engine.failed(watch.call, error) from error
