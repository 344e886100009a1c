"""What an error of MPI says, as a DistBackendError: MPI's class and text, and the op it came from."""

from __future__ import annotations

import re
from typing import Any

from distdbg.errors import DistBackendError


def to_error(error: Any, what: str, library: str) -> DistBackendError:
    """`error` is an MPI.Exception; `what` the op and its group."""
    text = text_of(str(error.Get_error_string()))
    number = error.Get_error_class()
    name = text.partition(":")[0]
    first = f"{what} failed in MPI: {text}"
    return DistBackendError(
        first if len(first) <= 120 else f"{what} failed in MPI: {name}",
        details=[f"{library}: {text} (error class {number})"],
        hint=_HINTS.get(name, _NO_MORE if _TOO_MANY in text.lower() else None),
    )


def text_of(reported: str) -> str:
    """MPI's words in one line; of MPICH's stack of them the last line has the reason."""
    lines = reported.strip().splitlines() or [""]
    head, stack, _ = lines[0].partition(", error stack:")
    why = _STACK_LINE.sub("", lines[-1]) if stack and len(lines) > 1 else ""
    return (f"{head}: {why}" if why else head).rstrip(". ")


#: 'MPIR_Wait(745).......: '
_STACK_LINE = re.compile(r"^\w+\(\d+\)\.*: ")
_TOO_MANY = "too many communicators"
_NO_MORE = (
    "destroy groups that are not needed any more, or make them once: MPI has no more communicators"
)
_HINTS = {
    "MPI_ERR_TRUNCATE": "the message is longer than the array it was to be received in",
    "Message truncated": "the message is longer than the array it was to be received in",
    "MPI_ERR_PROC_FAILED": "a rank of the group is gone",
}
