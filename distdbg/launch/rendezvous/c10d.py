"""The c10d kind: launchers that come and go meet at an endpoint, where one of them serves."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from distdbg.errors import DistNetworkError, RendezvousError, UsageError
from distdbg.launch.rendezvous.reach import FOREIGN_S, Search, is_here, is_name, own_address, serve
from distdbg.launch.rendezvous.settings import RendezvousSettings
from distdbg.launch.rendezvous.shared import OpenLauncherStore, SharedRendezvous
from distdbg.launch.rendezvous.solo import SoloRendezvous

if TYPE_CHECKING:
    from distdbg.launch.options import RunOptions
    from distdbg.launch.rendezvous.round import Rendezvous
    from distdbg.runtime.store import TCPStore

_log = logging.getLogger("distdbg.launch")


def make_c10d(options: RunOptions) -> Rendezvous:
    """Alone with --standalone or --nnodes 1, else at --rdzv-endpoint."""
    settings = RendezvousSettings.read(options.rdzv_conf)
    if options.standalone or options.max_nodes == 1:
        return SoloRendezvous(options.rdzv_id, host=options.local_addr or "127.0.0.1")
    if options.rdzv_port == 0:
        raise UsageError(
            f"--rdzv-endpoint {options.rdzv_endpoint} has no port that other launchers could know",
            hint="name one, the same for all launchers, as HOST:29400",
        )
    return SharedRendezvous(
        _Endpoint(options.rdzv_host, options.rdzv_port, options.local_addr, settings),
        job=options.rdzv_id,
        min_nodes=options.min_nodes,
        max_nodes=options.max_nodes,
        settings=settings,
    )


class _Endpoint:
    """One address that all launchers know; the first of those at home there serves."""

    def __init__(
        self, host: str, port: int, local_addr: str | None, settings: RendezvousSettings
    ) -> None:
        self._host = host
        self._local_addr = local_addr
        self._port = port
        self._settings = settings
        self.where = f"{f'[{host}]' if ':' in host else host}:{port}"

    def open(self, deadline_ns: int, check: Callable[[], None]) -> OpenLauncherStore:
        call_timeout_s = self._settings.call_timeout_s
        must_serve = self._settings.is_host is True
        may_serve = is_here(self._host) if self._settings.is_host is None else must_serve
        search = Search(self.where, self._host, self._port, call_timeout_s)
        taken_since_ns: int | None = None
        while True:
            check()
            taken = ""
            if may_serve:
                try:
                    host = self._own_host()
                    return self._reached(serve(host, self._port, call_timeout_s), host)
                except DistNetworkError as error:
                    if must_serve:
                        raise RendezvousError(
                            f"this launcher cannot serve the others at {self.where}",
                            details=[error.what],
                            hint=error.hint,
                        ) from error
                    taken = error.what  # by another launcher of the job, most likely
            if store := search.attempt():
                return self._reached(store, self._host)
            if taken:
                search.details.append(taken)
                now_ns = time.monotonic_ns()
                taken_since_ns = taken_since_ns or now_ns
                if now_ns - taken_since_ns > FOREIGN_S * 1e9:
                    raise RendezvousError(
                        f"the program that listens at {self.where} is not a launcher",
                        details=search.details,
                        hint="end that process, or choose another port, the same for all launchers",
                    )
            search.fail_after(deadline_ns)

    def _reached(self, store: TCPStore, host: str) -> OpenLauncherStore:
        return OpenLauncherStore(store=store, host=host, port=self._port)

    def _own_host(self) -> str:
        """Where to serve: many hosts take their own name for a loopback address, others do not."""
        if not is_name(self._host):
            return self._host
        if self._local_addr and is_here(self._local_addr):
            return self._local_addr
        address = own_address(self._host)
        if address is not None and ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            _log.warning(
                "%s is %s on this host, where launchers on other hosts cannot reach it; "
                "--local-addr says which address to serve at",
                self._host,
                address,
            )
        return self._host
