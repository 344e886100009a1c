"""Decides which other hosts are asked for their numbers, and when; knows whether all have told. Pure.

    state = step(state, event)          state.next_asked: who is to be asked next, and when

Each is asked every ten seconds or so, and more often at first. A host that does not answer is left alone,
twice as long each time; it keeps its last numbers, and after a while it is counted as missing. Times are
monotonic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

_EVERY_S: Final = 10.0
#: At first, and for each host: then what is told is not much older than a tenth of the job.
_FIRST_EVERY_S: Final = 1.0
_HOST_S: Final = 0.1
_SHARE: Final = 0.1
#: For how long the sums wait until all hosts have told theirs.
_WHOLE_S: Final = 12.0
#: How long a host that did not answer is left alone at the most.
_REST_S: Final = 20.0
_MAX_FAILED: Final = 10
#: After which the numbers of a host that said nothing new are not those of now.
_STALE_S: Final = 35.0


@dataclass(frozen=True, slots=True)
class HostsSeen:
    """These are there now, of `count` other hosts of the job."""

    at_s: float
    hosts: Mapping[str, bool]
    """Whether each is lost."""
    count: int


@dataclass(frozen=True, slots=True)
class TotalsReceived:
    """A host has told its numbers, and where it serves them; '' where it does not."""

    asked_s: float
    at_s: float
    host: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class HostSilent:
    asked_s: float
    host: str


@dataclass(frozen=True, slots=True)
class SumsWanted:
    """Somebody asks for the sums of the job."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedHost:
    """One other host, as the root asks it."""

    met_s: float
    due_s: float
    """When it is asked again."""
    failed: int = 0
    """How often in a row it did not answer."""
    answered_s: float | None = None
    """When it told its numbers last."""
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedHosts:
    """All that were met, and what is known of the job's others."""

    hosts: Mapping[str, AskedHost] = field(default_factory=dict)
    there: tuple[str, ...] = ()
    lost: frozenset[str] = frozenset()
    awaited: int = 0
    """Other hosts of the job that were not met yet."""
    wanted_s: float | None = None
    """When somebody asked for the sums first."""
    is_whole: bool = False
    """Whether all had told something then, or have had time to; it stays so.

    An agent that is started again has not asked anybody: sums that begin with those of its own host would
    rise by all that the others have ever done.
    """

    @property
    def next_asked(self) -> tuple[str, float] | None:
        """The host to be asked next, and when; None: there is none."""
        due = [(self.hosts[host].due_s, host) for host in self.there if host not in self.lost]
        return min(due)[::-1] if due else None

    @property
    def addresses(self) -> dict[str, str]:
        """Where those that are there serve metrics, as far as they have said."""
        known = {host: self.hosts[host].address for host in self.there}
        return {host: address for host, address in known.items() if address}

    def missing(self, now_s: float) -> int:
        """How many are lost, or have said nothing lately."""
        answered = {host: self.hosts[host].answered_s for host in self.there}
        return self.awaited + sum(
            host in self.lost or at_s is None or now_s - at_s >= _STALE_S
            for host, at_s in answered.items()
        )


def step(
    state: AskedHosts, event: HostsSeen | TotalsReceived | HostSilent | SumsWanted
) -> AskedHosts:
    """The state after an event."""
    match event:
        case HostsSeen(at_s=at_s, hosts=seen):
            met = {host: AskedHost(met_s=at_s, due_s=at_s) for host in seen} | dict(state.hosts)
            return replace(
                state,
                hosts=met,
                there=tuple(seen),
                lost=frozenset(host for host, is_lost in seen.items() if is_lost),
                awaited=max(0, event.count - len(met)),
            )
        case TotalsReceived(asked_s=asked_s, host=name):
            host = state.hosts[name]
            least_s = max(_FIRST_EVERY_S, _HOST_S * len(state.there))
            every_s = min(_EVERY_S, max(least_s, (asked_s - host.met_s) * _SHARE))
            return _with(
                state,
                name,
                replace(
                    host,
                    due_s=asked_s + every_s,
                    failed=0,
                    answered_s=event.at_s,
                    address=event.address or host.address,
                ),
            )
        case HostSilent(asked_s=asked_s, host=name):
            host = state.hosts[name]
            failed = min(host.failed + 1, _MAX_FAILED)
            due_s = asked_s + min(_REST_S, 2.0**failed)
            return _with(state, name, replace(host, due_s=due_s, failed=failed))
        case SumsWanted(at_s=at_s):
            since_s = at_s if state.wanted_s is None else state.wanted_s
            has_all = not state.awaited and all(
                host in state.lost or state.hosts[host].answered_s is not None
                for host in state.there
            )
            is_whole = state.is_whole or has_all or at_s - since_s >= _WHOLE_S
            return replace(state, wanted_s=since_s, is_whole=is_whole)
        case _:
            assert_never(event)


def _with(state: AskedHosts, name: str, host: AskedHost) -> AskedHosts:
    return replace(state, hosts={**state.hosts, name: host})
