"""What an error of MPI says, as a DistBackendError: MPI's class and text, and the op it came from."""

from __future__ import annotations

from typing import Any

from distdbg.errors import DistBackendError


def to_error(error: Any, what: str, library: str) -> DistBackendError:
    """`error` is an MPI.Exception; `what` the op and its group."""
    text = str(error.Get_error_string()).partition("\n")[0].rstrip(". ")
    number = error.Get_error_class()
    name = text.partition(":")[0]
    first = f"{what} failed in MPI: {text}"
    return DistBackendError(
        first if len(first) <= 120 else f"{what} failed in MPI: {name}",
        details=[f"{library}: {text} (error class {number})"],
        hint=_HINTS.get(name),
    )


_HINTS = {
    "MPI_ERR_TRUNCATE": "the message is longer than the array it was to be received in",
    "MPI_ERR_PROC_FAILED": "a rank of the group is gone",
}
