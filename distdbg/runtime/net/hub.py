"""The hub of this process: where ranks of other hosts connect to it. Made with the first group that needs it.

Groups share it, and with the last of them it is closed. A child made by fork makes one of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from distdbg.check.logs import get_logger
from distdbg.config import read_float
from distdbg.control.tokens import derive_token
from distdbg.native import TcpHub
from distdbg.runtime.net.address import own_address
from distdbg.runtime.net.hosts import Hosts, is_one_machine
from distdbg.runtime.rendezvous.process import Process
from distdbg.runtime.rendezvous.token import run_token
from distdbg.runtime.store import PrefixStore, Store
from distdbg.secure.guard import LINK_SILENCE_S, Guard, open_guard

_log = get_logger("runtime")


class Net:
    """What native code needs to reach the other hosts of one group."""

    def __init__(self, hub: TcpHub, cookie: int, addresses: Sequence[str]) -> None:
        self.hub = hub
        #: What proves that a connection is of this group.
        self.cookie = cookie
        #: By group rank: "host:port"; empty for ranks of this host.
        self.addresses = addresses
        self.keepalive_s = read_float("DISTDBG_KEEPALIVE_S")
        self._is_open = True

    def close(self) -> None:
        """The group needs the hub no more."""
        if self._is_open:
            self._is_open = False
            _leave_hub()


class _Shared:
    """The hub, and how many groups use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.hub: TcpHub | None = None
        self.guard: Guard | None = None
        self.pid = 0
        self.users = 0


_shared = _Shared()


def _take_hub(store_host: str | None, is_one_machine: bool) -> TcpHub:
    """The hub of this process; each call has its `_leave_hub`."""
    with _shared.lock:
        if _shared.pid != os.getpid():
            _shared.hub, _shared.guard = None, None
            _shared.pid, _shared.users = os.getpid(), 0
        if _shared.hub is None:
            address = own_address(store_host, is_one_machine)
            token = run_token()
            guard = open_guard(token, silence_s=LINK_SILENCE_S)
            try:
                native = guard.native if guard is not None else None
                _shared.hub = TcpHub(address, "0", derive_token(token, "link"), native)
            except BaseException:
                if guard is not None:
                    guard.close()
                raise
            _shared.guard = guard
            _log.info("ranks of other hosts reach this process at %s", _shared.hub.address)
        _shared.users += 1
        return _shared.hub


def open_net(
    store: Store, rank: int, hosts: Hosts, processes: Sequence[Process], cookie: int
) -> Net:
    """Tell the ranks of other hosts in the group's store where this process is, and find out where they are.

    To be closed after the group.
    """
    hub = _take_hub(store_host(store), is_one_machine(processes))
    try:
        store.set(f"net/{rank}", hub.address)
        here = next(ranks for ranks in hosts if rank in ranks)
        others = [other for other in range(len(processes)) if other not in here]
        found = store.multi_get([f"net/{other}" for other in others])
    except BaseException:
        _leave_hub()
        raise
    addresses = [""] * len(processes)
    for other, address in zip(others, found, strict=True):
        addresses[other] = address.decode()
    return Net(hub, cookie, addresses)


def store_host(store: object) -> str | None:
    """The host of the server behind a store; None where there is none."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return getattr(store, "host", None)


def _leave_hub() -> None:
    """One group less uses it."""
    with _shared.lock:
        if _shared.pid != os.getpid() or _shared.hub is None:
            return
        for complaint in _shared.hub.complaints():
            _log.warning("a stranger was refused at %s: %s", _shared.hub.address, complaint)
        _shared.users -= 1
        if _shared.users == 0:
            _shared.hub.close()
            if _shared.guard is not None:
                _shared.guard.close()
            _shared.hub = _shared.guard = None
