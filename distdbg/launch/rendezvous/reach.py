"""Reach a store that another launcher serves, trying again until it is there."""

from __future__ import annotations

import errno
import ipaddress
import socket
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

from distdbg.errors import DistError, DistNetworkError, RendezvousError
from distdbg.launch.rendezvous.waits import WaitNotice
from distdbg.record.durations import duration_text

if TYPE_CHECKING:
    from distdbg.runtime.store import TCPStore

_ATTEMPT_S = 0.5
#: Where a thousand come at once, who is served late would else begin again and again.
_LONGEST_ATTEMPT_S = 4.0
#: So long a port may be taken by something else, or a launcher be too busy to answer.
FOREIGN_S = 10.0
_HINT = "is the launcher that serves it running, and does a firewall let this host in"


class Search:
    """Attempts to reach one address, and why they failed."""

    def __init__(self, where: str, host: str, port: int, call_timeout_s: float) -> None:
        self._where = where
        self._host = host
        self._port = port
        self._call_timeout_s = call_timeout_s
        self._started_ns = time.monotonic_ns()
        self._foreign_since_ns: int | None = None
        self.details: list[str] = []
        """More to say should it fail."""

    def attempt(self, limit_s: float = _ATTEMPT_S) -> TCPStore | None:
        """Try once, for half a second; RendezvousError when trying again would not help."""
        from distdbg.runtime.store import TCPStore

        try:
            limit = timedelta(seconds=limit_s)
            store = TCPStore(self._host, self._port, timeout=limit, _is_attempt=True)
        except DistError as error:
            self._note(error)
            return None
        store.set_timeout(timedelta(seconds=self._call_timeout_s))
        return store

    def until(self, deadline_ns: int, check: Callable[[], None]) -> TCPStore:
        limit_s = _ATTEMPT_S
        notice = WaitNotice()
        while True:
            check()
            if store := self.attempt(limit_s):
                return store
            self.fail_after(deadline_ns)
            notice.look(self._words, deadline_ns)
            left_s = (deadline_ns - time.monotonic_ns()) / 1e9
            limit_s = max(_ATTEMPT_S, min(2 * limit_s, left_s, _LONGEST_ATTEMPT_S))

    def _words(self) -> str:
        return f"this launcher cannot reach {self._where} yet: {'; '.join(self.details)}"

    def fail_after(self, deadline_ns: int) -> None:
        """Raise when it is that late."""
        if time.monotonic_ns() <= deadline_ns:
            return
        waited_s = (time.monotonic_ns() - self._started_ns) / 1e9
        raise RendezvousError(
            f"this launcher did not reach {self._where} within {duration_text(waited_s)}",
            details=self.details,
            hint=_HINT,
        )

    def _note(self, error: DistError) -> None:
        self.details = [error.what]
        match getattr(error.__cause__, "error_number", 0):
            case errno.EACCES:
                raise RendezvousError(
                    f"the launcher at {self._where} rejects this one: its token is different",
                    details=self.details,
                    hint="give all launchers of the job the same DISTDBG_TOKEN (or "
                    "DISTDBG_TOKEN_FILE); without it they must be of one user with one home folder",
                ) from error
            case errno.EPROTO:
                now_ns = time.monotonic_ns()
                since_ns = self._foreign_since_ns = self._foreign_since_ns or now_ns
                if now_ns - since_ns > FOREIGN_S * 1e9:
                    raise RendezvousError(
                        f"another program answers at {self._where}, not a launcher",
                        details=self.details,
                        hint="choose another port, the same for all launchers",
                    ) from error
                time.sleep(_ATTEMPT_S)
            case 0:  # the name of the host is unknown, by now
                time.sleep(_ATTEMPT_S)


def serve(host: str, port: int, call_timeout_s: float) -> TCPStore:
    """Serve a store; DistNetworkError says who holds the port, or that the address is not ours."""
    from distdbg.runtime.store import TCPStore

    return TCPStore(host, port, is_master=True, timeout=timedelta(seconds=call_timeout_s))


def is_here(host: str) -> bool:
    """Whether one of the addresses of `host` is this host's."""
    return own_address(host) is not None


def own_address(host: str) -> str | None:
    """The first address of `host` that is this host's, which a server would listen on."""
    from distdbg.runtime.store.listen import resolve

    try:
        found = resolve(host, 0)
    except DistNetworkError:
        return None
    for family, address in found:
        with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return str(address[0])
    return None


def is_name(host: str) -> bool:
    """Whether `host` is no address, so that hosts may differ in what they take it for."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host != "localhost"
    return False
