"""Where the agents of a round are: each publishes its address in the job's store, below `agents/<round>/`.

A store may be slow, or gone with its host, and its client blocks: so all of this runs on a thread of
its own, which asks for what the tree wants to know and hands over what it finds. Nobody waits for it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from distdbg.errors import DistError

if TYPE_CHECKING:
    from distdbg.runtime.store import Store

_log = logging.getLogger("distdbg.agent")

_STORE_TIMEOUT_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_MAX_NBYTES: Final = 1024
#: It is tried again, and whoever closes a directory waits for its thread.
_LOOKUP_S: Final = 1.0


class Address(NamedTuple):
    address: str
    port: int


class Directory:
    """Publishes this node and looks for others until it is closed.

    `locate` says which address this host is known by; on_located and on_found are called from the
    thread with what there is.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        folder: str,
        *,
        locate: Callable[[], str],
        on_located: Callable[[str], None],
        on_found: Callable[[dict[int, Address]], None],
    ) -> None:
        self._open = open_store
        self._folder = folder
        self._locate = locate
        self._on_located = on_located
        self._on_found = on_found
        self._lock = threading.Condition()  # protects the four below
        self._wanted: tuple[int, ...] = ()
        self._published: tuple[int, str] | None = None
        self._is_closed = False
        self._is_asked = False
        self._thread = threading.Thread(target=self._run, name="distdbg-agent-find", daemon=True)
        self._thread.start()

    def publish(self, node: int, host: str, address: Address) -> None:
        said = {"host": host, "address": address.address, "port": address.port, "pid": os.getpid()}
        with self._lock:
            self._published = (node, json.dumps(said))
            self._look_soon()

    def want(self, nodes: Sequence[int]) -> None:
        """Look for these, now and until told otherwise; `on_found` gets what is there."""
        with self._lock:
            if self._wanted != tuple(nodes):
                self._wanted = tuple(nodes)
                self._look_soon()

    def close(self) -> None:
        """End the thread, within the store's timeout."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        self._thread.join(1.5 * _STORE_TIMEOUT_S)

    def _look_soon(self) -> None:
        self._is_asked = True
        self._lock.notify_all()

    def _run(self) -> None:
        store: Store | None = None
        pause_s = _FIRST_PAUSE_S
        published: tuple[int, str] | None = None
        has_complained = is_located = False
        while True:
            with self._lock:
                if self._is_asked:
                    pause_s, self._is_asked = _FIRST_PAUSE_S, False
                wanted, to_publish, is_closed = self._wanted, self._published, self._is_closed
            if is_closed:
                break
            try:
                if not is_located:
                    self._on_located(self._locate())
                    is_located = True
                if store is None:
                    store, published = self._open(), None
                if to_publish is not None and to_publish != published:
                    store.set(f"{self._folder}/{to_publish[0]}", to_publish[1])
                    published = to_publish
                found = self._look(store, wanted)
                if found:
                    self._on_found(found)
            except (DistError, OSError) as error:
                if not has_complained:
                    has_complained = True
                    _log.warning("the agents' store does not answer: %s", str(error).split("\n")[0])
                if store is not None:
                    _close(store)
                store = None
            with self._lock:
                if not (self._is_asked or self._is_closed):
                    is_idle = published is not None and published == to_publish and not wanted
                    self._lock.wait(None if is_idle else pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        if store is not None:
            _close(store)

    def _look(self, store: Store, wanted: Sequence[int]) -> dict[int, Address]:
        found = {}
        for node in wanted:
            key = f"{self._folder}/{node}"
            if store.check([key]):
                address = read_address(store.get(key))
                if address is not None:
                    found[node] = address
        return found


def _close(store: Store) -> None:
    close: Any = getattr(store, "close", None)
    if close is not None:
        with contextlib.suppress(DistError, OSError):
            close()


def read_address(value: bytes) -> Address | None:
    """What an agent published; None for what is no such thing."""
    try:
        match json.loads(value[:_MAX_NBYTES]):
            case {"address": str() as address, "port": int() as port} if 0 < port < 65536:
                return Address(str(ipaddress.ip_address(address)), port)
    except ValueError:
        pass
    return None


def store_opener(url: str, token: bytes) -> Callable[[], Store]:
    """What opens the store at tcp://host:port/folder, or launcher://. ValueError for another URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("tcp", "launcher") or not parts.hostname or not parts.port:
        raise ValueError(f"the agents meet at tcp://host:port/folder, not at {url!r}")
    host, port = parts.hostname, parts.port

    def open_store() -> Store:
        # Here, for it loads the native module, which an agent of one host never needs.
        from distdbg.runtime.store.tcp import TCPStore

        return TCPStore(host, port, timeout=_STORE_TIMEOUT_S, _token=token, _is_attempt=True)

    return open_store


def store_folder(url: str) -> str:
    """Where in the store the agents' keys are."""
    return urlsplit(url).path.strip("/") or "agents"


#: An address of no host; nothing is sent there.
_ELSEWHERE: Final = "198.51.100.1"


def own_address(host: str, store_url: str) -> str:
    """The address that the other hosts know this one by.

    `host` when it is an address (the launcher's --local-addr), else that from which this host
    reaches the store: a name may stand for 127.0.1.1 at home, also that of the store, and then it is
    the address with which this host goes out. OSError when there is none.
    """
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(host))
    # Here, as above.
    from distdbg.runtime.store.names import look_up

    parts = urlsplit(store_url)
    found = look_up(parts.hostname or "", parts.port or 0, limit_s=_LOOKUP_S)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    address = _way_to(found[0][0], found[0][4])
    if _is_name(parts.hostname) and ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        with contextlib.suppress(OSError):
            return _way_to(socket.AF_INET, (_ELSEWHERE, 9))
    return address


def _is_name(host: str | None) -> bool:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host or "")
        return False
    return host != "localhost"


def _way_to(family: int, place: Any) -> str:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(place)  # sends nothing: the kernel chooses the way
        return str(probe.getsockname()[0])
