"""A rank's ways to the ranks of other hosts, in one group; none where all are on one host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from distdbg.config import read_setting
from distdbg.runtime.net.hosts import find_hosts, name_hosts
from distdbg.runtime.net.run_links import RunLinks
from distdbg.runtime.rendezvous.process import ProcessIdentity

if TYPE_CHECKING:
    from distdbg.runtime.net.hub import NativeNet
    from distdbg.runtime.store import Store


class HostLinks:
    """The links of a group to other hosts, which are closed after the group."""

    def __init__(self, store: Store, rank: int, processes: Sequence[ProcessIdentity]) -> None:
        is_each_alone = read_setting("DISTDBG_TRANSPORT") in ("tcp", "ucx")
        hosts = find_hosts(processes, is_each_alone)
        self.hosts = hosts if len(hosts) > 1 else ()
        #: What messages call the host of a rank, where there are several.
        self.host_name = name_hosts(processes)
        #: What is known of the ways between them; nothing where there is one host.
        self.links = RunLinks(store, self.hosts, processes) if self.hosts else None
        self._store = store
        self._rank = rank
        self._processes = processes
        self._nets: list[NativeNet] = []

    def open(self, cookie: int) -> NativeNet:
        """What native code needs for the group with this cookie."""
        # A group of one host needs none of it.
        from distdbg.runtime.net.hub import open_net

        net = open_net(self._store, self._rank, self.hosts, self._processes, cookie)
        self._nets.append(net)
        return net

    def close(self) -> None:
        """Idempotent."""
        for net in self._nets:
            net.close()
