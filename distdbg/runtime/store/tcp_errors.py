"""Errors of a TCPStore that cannot be reached, or is gone."""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.control.words import to_error
from distdbg.errors import (
    DistError,
    DistNetworkError,
    DistStoreError,
    NotAuthenticatedError,
    UsageError,
)
from distdbg.record.durations import duration_text
from distdbg.runtime.store.holder import find_sockets, holder_of, is_of_this_host

_ERRNO_NOT_AUTHENTICATED = 13  # EACCES
#: The native client's words for a server that is not where it was dialled.
_ELSEWHERE = "is not at the address that was dialled"


def connect_error(
    label: str, error: Exception, waited_s: float, *, details: Sequence[str]
) -> DistError:
    """Why there is no connection: `error` is the native one, with its fault and errno."""
    if _ELSEWHERE in str(error):
        return DistNetworkError(
            f"{label}: not authenticated: {error}: a proxy in between forwards the connection",
            details=details,
            hint="where that is a tunnel or NAT of yours, set DISTDBG_SERVED_AS to the IP:PORT that is "
            "dialled, in the process that serves the store",
        )
    if getattr(error, "error_number", 0) == _ERRNO_NOT_AUTHENTICATED:
        return NotAuthenticatedError(
            f"{label}: not authenticated: {error}",
            details=details,
            hint="all ranks of a run need the same DISTDBG_TOKEN (or DISTDBG_TOKEN_FILE); "
            "without it, ranks must be of one user with one home folder",
        )
    if getattr(error, "fault", "") == "network":
        return DistNetworkError(
            f"{label}: cannot connect within {duration_text(waited_s)}: {error}",
            details=details,
            hint="is rank 0 running, on that host and port, and does a firewall let this host in?",
        )
    return call_error(label, error, waited_s)


def call_error(label: str, error: Exception, waited_s: float) -> DistError:
    """Why a call on an open store failed."""
    match getattr(error, "fault", ""):
        case "aborted":
            return to_error(str(error), op=f"a wait for {label}")
        case "usage":
            return UsageError(
                f"{label} was opened before this process was forked",
                hint="open a store in the child itself, or start ranks with spawn",
            )
        case "store":
            return UsageError(f"{label}: {error}")
        case "timeout":
            return DistStoreError(
                f"{label} did not answer for {duration_text(waited_s)}", waited_s=waited_s
            )
        case "broken":
            return DistStoreError(f"{label} is closed")
        case "network":
            return DistNetworkError(
                f"{label} is gone: {error}",
                hint="the rank that served it has ended; its output says why",
            )
        case _:
            return DistNetworkError(f"{label}: {error}")


def who_listens(host: str, port: int) -> list[str]:
    """What is known of who holds a port, where that is this host's; looks through all its processes."""
    if is_of_this_host(host) and any(entry.listens for entry in find_sockets(port)):
        return [f"the port is held by {holder_of(port)}"]
    return []
