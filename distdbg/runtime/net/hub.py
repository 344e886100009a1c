"""The hub of this process: where ranks of other hosts connect to it. Made with the first group that needs it,
and so is UCX.

Groups share it, and with the last of them it is closed. A child made by fork makes one of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from distdbg.config import read_float, read_int
from distdbg.control.dialled_address import derive_token
from distdbg.errors import ConfigError, format_ranks
from distdbg.log.logs import get_logger
from distdbg.native import TcpHub, UcxEngine
from distdbg.runtime.net import ucx
from distdbg.runtime.net.address import own_address
from distdbg.runtime.net.hosts import Hosts, is_one_machine
from distdbg.runtime.rendezvous.process import ProcessIdentity
from distdbg.runtime.rendezvous.token import run_token
from distdbg.runtime.store import PrefixStore, Store
from distdbg.secure.guard import LINK_SILENCE_S, Guard, open_guard

_log = get_logger("runtime")


class NativeNet:
    """What native code needs to reach the other hosts of one group."""

    def __init__(
        self,
        hub: TcpHub,
        cookie: int,
        addresses: Sequence[str],
        ucx: tuple[UcxEngine, Sequence[tuple[bytes, bool]]] | None,
    ) -> None:
        self.hub = hub
        #: None: messages go by TCP. By group rank: the address of its worker, and whether it is on this host.
        self.ucx = ucx
        #: What proves that a connection is of this group.
        self.cookie = cookie
        #: By group rank: "host:port"; empty for ranks of this host.
        self.addresses = addresses
        self.keepalive_s = read_float("DISTDBG_KEEPALIVE_S")
        self.streams = min(max(read_int("DISTDBG_TCP_STREAMS"), 1), 8)
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
        self.engine: UcxEngine | None = None
        self.guard: Guard | None = None
        self.pid = 0
        self.users = 0


_shared = _Shared()


def _take_hub(store_host: str | None, is_one_machine: bool) -> TcpHub:
    """The hub of this process; each call has its `_leave_hub`."""
    with _shared.lock:
        if _shared.pid != os.getpid():
            _shared.hub, _shared.guard, _shared.engine = None, None, None
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


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """The place of a rank, as it tells the others in the group's store."""

    address: str
    #: Address of its worker of UCX; empty: it has none.
    worker: bytes = b""
    #: Why it has none, where that was asked for.
    refusal: str = ""

    def to_bytes(self) -> bytes:
        """Encode it for the store: "host:port", then the worker in hex or "!" and the refusal."""
        rest = f"!{self.refusal}" if self.refusal else self.worker.hex()
        return f"{self.address} {rest}".encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> PeerAddress:
        """Decode what the store has."""
        address, _, rest = text.decode().partition(" ")
        if rest.startswith("!"):
            return cls(address, refusal=rest[1:])
        return cls(address, bytes.fromhex(rest))


def open_net(
    store: Store, rank: int, hosts: Hosts, processes: Sequence[ProcessIdentity], cookie: int
) -> NativeNet:
    """Tell the ranks of other hosts in the group's store where this process is, and find out where they are.

    UCX is used where all ranks have it. ConfigError on all ranks where one is asked for it and has it not.
    To be closed after the group.
    """
    is_demanded = ucx.is_demanded()
    hub = _take_hub(store_host(store), is_one_machine(processes))
    try:
        mine, refused = _find_own_address(hub, is_demanded)
        store.set(f"net/{rank}", mine.to_bytes())
        if refused is not None:
            raise refused
        here = next(ranks for ranks in hosts if rank in ranks)
        # UCX also connects ranks of one host; without it those need no address of each other.
        not_asked = (rank,) if mine.worker else here
        others = [other for other in range(len(processes)) if other not in not_asked]
        found = store.multi_get([f"net/{other}" for other in others])
        peers = {o: PeerAddress.from_bytes(text) for o, text in zip(others, found, strict=True)}
        has_all = _is_ucx_everywhere(mine, peers, is_demanded)
    except BaseException:
        _leave_hub()
        raise
    addresses = [""] * len(processes)
    workers = [(b"", False)] * len(processes)
    for other, peer in peers.items():
        if other in here:
            continue
        addresses[other] = peer.address
        if has_all:
            workers[other] = (peer.worker, processes[other].shares_kernel(processes[rank]))
    engine = _shared.engine
    return NativeNet(hub, cookie, addresses, (engine, workers) if has_all and engine else None)


def _find_own_address(hub: TcpHub, is_demanded: bool) -> tuple[PeerAddress, ConfigError | None]:
    """The address of this rank, and the error to raise once the others know it."""
    if not is_demanded and not ucx.is_worth_it():
        return PeerAddress(hub.address), None
    try:
        with _shared.lock:
            if _shared.engine is None:
                _shared.engine = ucx.open_engine(derive_token(run_token(), "link"))
                _log.info("messages between hosts may go by UCX %s", _shared.engine.version)
            return PeerAddress(hub.address, _shared.engine.address), None
    except ConfigError as error:
        if is_demanded:
            reason = "; ".join(error.details) or str(error)
            return PeerAddress(hub.address, refusal=reason), error
        _log.info("a fabric is up, but its messages go by TCP: %s", "; ".join(error.details))
        return PeerAddress(hub.address), None


def _is_ucx_everywhere(
    mine: PeerAddress, others: dict[int, PeerAddress], is_demanded: bool
) -> bool:
    lacking = [rank for rank, peer in sorted(others.items()) if not peer.worker]
    if is_demanded and lacking:
        reasons = [
            f"rank {rank}: {others[rank].refusal or 'it was not asked to'}" for rank in lacking
        ]
        raise ConfigError(
            f"ranks {format_ranks(lacking)} do not use UCX, and this one is asked to",
            details=reasons[:8],
            hint="DISTDBG_TRANSPORT must be the same on all ranks, and libucp be there",
        )
    refused = [rank for rank, peer in sorted(others.items()) if peer.refusal]
    if refused:
        raise ConfigError(
            f"ranks {format_ranks(refused)} are asked to use UCX and cannot, and this one is not",
            details=[f"rank {rank}: {others[rank].refusal}" for rank in refused[:8]],
            hint="DISTDBG_TRANSPORT must be the same on all ranks",
        )
    return bool(mine.worker) and not lacking


def store_host(store: object) -> str | None:
    """The host of the server behind a store; None where there is none."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return getattr(store, "host", None)


def _leave_hub() -> None:
    """End the use of the hub by one group; the last one closes it."""
    with _shared.lock:
        if _shared.pid != os.getpid() or _shared.hub is None:
            return
        for complaint in _shared.hub.complaints():
            _log.warning("a stranger was refused at %s: %s", _shared.hub.address, complaint)
        _shared.users -= 1
        if _shared.users == 0:
            if _shared.engine is not None:
                _shared.engine.close()
            _shared.hub.close()
            if _shared.guard is not None:
                _shared.guard.close()
            _shared.hub = _shared.guard = _shared.engine = None
