"""The static kind: so many launchers, each with a fixed --node-rank.

They meet at an address that all know, but the store of the job is elsewhere: the ranks of torch want
that very port for themselves. So node 0 opens the store on any free port, publishes its address at the
meeting port, and closes that one before it declares the first round complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from distdbg.errors import DistError, DistNetworkError, RendezvousError, UsageError
from distdbg.launch.rendezvous.reach import Search, serve
from distdbg.launch.rendezvous.settings import RendezvousSettings
from distdbg.launch.rendezvous.shared import OpenLauncherStore, SharedRendezvous
from distdbg.launch.rendezvous.solo import SoloRendezvous

if TYPE_CHECKING:
    from distdbg.launch.options import RunOptions
    from distdbg.launch.rendezvous.round import Rendezvous

_READ_S = 5.0


def make_static(options: RunOptions) -> Rendezvous:
    """Alone, or with others at --master-addr and --master-port (or --rdzv-endpoint)."""
    settings = RendezvousSettings.read(options.rdzv_conf)
    if options.min_nodes != options.max_nodes:
        raise UsageError(
            f"--nnodes {options.min_nodes}:{options.max_nodes} needs an elastic rendezvous",
            hint="add --rdzv-backend c10d --rdzv-endpoint HOST:PORT",
        )
    if options.max_nodes == 1:
        return SoloRendezvous(options.rdzv_id, host=options.local_addr or "127.0.0.1")
    if not 0 <= options.node_rank < options.max_nodes:
        raise UsageError(f"--node-rank {options.node_rank} is not one of {options.max_nodes} hosts")
    return SharedRendezvous(
        _Meeting(options, settings),
        job=options.rdzv_id,
        min_nodes=options.max_nodes,
        max_nodes=options.max_nodes,
        settings=settings,
        place=options.node_rank,
    )


class _Meeting:
    """The address where the first launcher, --node-rank 0, tells the others where its store is."""

    def __init__(self, options: RunOptions, settings: RendezvousSettings) -> None:
        host, port = options.rdzv_host, options.rdzv_port
        self._host = host
        self._port = port
        self._is_first = options.node_rank == 0
        self._call_timeout_s = settings.call_timeout_s
        self._key = f"{options.rdzv_id}/store"
        self.where = f"{f'[{host}]' if ':' in host else host}:{port}"

    def open(self, deadline_ns: int, check: Callable[[], None]) -> OpenLauncherStore:
        return self._host_it() if self._is_first else self._visit(deadline_ns, check)

    def _host_it(self) -> OpenLauncherStore:
        try:
            store = serve(self._host, 0, self._call_timeout_s)
            try:
                meeting = serve(self._host, self._port, self._call_timeout_s)
            except BaseException:
                store.close()
                raise
        except DistNetworkError as error:
            raise RendezvousError(
                f"the first launcher cannot wait for the others at {self.where}",
                details=[error.what],
                hint=error.hint,
            ) from error
        meeting.set(self._key, json.dumps({"port": store.port}))
        return OpenLauncherStore(
            store=store, host=self._host, port=store.port, release=meeting.close
        )

    def _visit(self, deadline_ns: int, check: Callable[[], None]) -> OpenLauncherStore:
        search = Search(self.where, self._host, self._port, self._call_timeout_s)
        while True:
            meeting = search.until(deadline_ns, check)
            try:
                meeting.set_timeout(timedelta(seconds=_READ_S))
                port = int(json.loads(meeting.get(self._key))["port"])
            except (DistError, ValueError, KeyError, TypeError) as error:
                search.details = [
                    f"the first launcher did not publish the address of its store: {error!s}"
                ]
                search.fail_after(deadline_ns)
                continue
            finally:
                with suppress(DistError):
                    meeting.close()
            where = f"the store of the first launcher at {self._host}:{port}"
            store = Search(where, self._host, port, self._call_timeout_s).until(deadline_ns, check)
            return OpenLauncherStore(store=store, host=self._host, port=port, completes=False)
