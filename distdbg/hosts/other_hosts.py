"""Holds the clocks of all hosts while a rank of any host is in a debugger. Pure.

    a rank in the debugger   ->  its row at the root  ->  order "holds"  ->  each host holds its own clock
    none, or its host lost   ->  order without it, or none for LEASE_NS  ->  each gives its hold back

A hold is a lease that the root renews. So no clock is held for ever, not even when the root dies or a link is
cut, at either end.
"""

from __future__ import annotations

from typing import Any, Final

_S: Final = 1_000_000_000
RENEW_NS: Final = 3 * _S
LEASE_NS: Final = 12 * _S
_MAX_HOSTS: Final = 64


class HostsInDebugger:
    """Which hosts have ranks in a debugger, as the root says it and as all others hear it."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._said: frozenset[str] = frozenset()
        self._said_ns = 0
        self._heard: frozenset[str] = frozenset()
        self._until_ns = 0

    def due(self, hosts: frozenset[str], now_ns: int) -> dict[str, Any] | None:
        """At the root: the words to order of all now, when these hosts hold the clock; None: none."""
        is_old = bool(hosts) and now_ns - self._said_ns >= RENEW_NS
        if hosts == self._said and not is_old:
            return None
        self._said, self._said_ns = hosts, now_ns
        # Any two of them are enough for each host to know that another one does.
        return {"hosts": sorted(hosts)[:_MAX_HOSTS]}

    def hear(self, words: dict[str, Any], now_ns: int) -> None:
        """The root says which hosts do; what is not to be read is nobody."""
        hosts = words.get("hosts")
        known = hosts if isinstance(hosts, list) else ()
        self._heard = frozenset(host for host in known if isinstance(host, str))
        self._until_ns = now_ns + LEASE_NS

    def is_holding(self, now_ns: int) -> bool:
        """Whether this host's clock has to stand for another's sake."""
        return bool(self._heard - {self._own}) and now_ns < self._until_ns
