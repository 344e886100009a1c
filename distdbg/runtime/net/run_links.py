"""What messages between the hosts of a group take: measured once for each pair of hosts in a run.

Algorithms are chosen by it, and the order in which floating-point numbers are added follows from that:
groups that measured for themselves could differ in the last bits of equal sums. So what the first group has
found of a pair stays in the store below all groups, and later groups of any ranks of these hosts take it from
there.

A group goes by the pairs of neighbours on a ring of its hosts, in an order that is the same for all groups of
these hosts. One that lacks a pair measures its whole ring; of pairs that others knew first, theirs counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdbg.errors import DistError
from distdbg.log.logs import get_logger
from distdbg.runtime.net.hosts import Hosts
from distdbg.runtime.plan.link import NetworkLink, measured_link, parse_link
from distdbg.runtime.rendezvous.process import ProcessIdentity
from distdbg.runtime.store import PrefixStore, Store

_log = get_logger("runtime")


class RunLinks:
    """The links of one group, as its rank 0 asks the run's store for them and adds to it."""

    def __init__(self, store: Store, hosts: Hosts, processes: Sequence[ProcessIdentity]) -> None:
        while isinstance(store, PrefixStore):
            store = store.underlying_store
        self._store = store
        names = [_name(processes[ranks[0]]) for ranks in hosts]
        #: Numbers of hosts: each is measured with the one before it.
        self.ring = sorted(range(len(hosts)), key=lambda number: (names[number], number))
        #: By place on the ring.
        self._keys = [
            _key(names[host], names[before])
            for host, before in zip(self.ring, [self.ring[-1], *self.ring], strict=False)
        ]

    def known(self) -> str:
        """As DISTDBG_LINK has it; empty where a pair has not been measured in this run."""
        keys = sorted(set(self._keys))
        if not self._store.check(keys):
            return ""
        return slowest([value.decode() for value in self._store.multi_get(keys)])

    def keep(self, times_ns: Sequence[tuple[int, int]], long_nbytes: int) -> str:
        """What this group goes by from here on, in the same form.

        `times_ns`: by host, a message without bytes and a long one, from the host before it on the ring.
        """
        found: dict[str, NetworkLink] = {}
        for key, host in zip(self._keys, self.ring, strict=True):
            short_ns, long_ns = times_ns[host]
            link = measured_link(short_ns / 1e9, long_ns / 1e9, long_nbytes)
            found[key] = _slower(found[key], link) if key in found else link
        return slowest([self._keep_first(key, link.words) for key, link in found.items()])

    def _keep_first(self, key: str, words: str) -> str:
        try:
            return self._store.compare_set(key, "", words).decode()
        except DistError as error:  # a user's store need not have it
            _log.info("what messages between hosts take is measured for each group: %s", error)
            return words


def slowest(all_words: Sequence[str]) -> str:
    """The highest latency and the lowest bandwidth of some links."""
    first, *others = map(parse_link, all_words)
    for link in others:
        first = _slower(first, link)
    return first.words


def _slower(one: NetworkLink, other: NetworkLink) -> NetworkLink:
    return replace(
        one,
        latency_s=max(one.latency_s, other.latency_s),
        byte_s=max(one.byte_s, other.byte_s),
    )


def _name(process: ProcessIdentity) -> str:
    return f"{process.boot_id}.{process.pid_namespace}"


def _key(one: str, other: str) -> str:
    first, second = sorted((one, other))
    return f"distdbg/links/{first}/{second}"
