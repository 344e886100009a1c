"""The connections of a live feed: one to the agent that knows the job, and one to each host that is asked.

Those to other hosts go through the first one's agent. A host that does not answer is left alone for a
moment, and the others are none the worse; what is known of why is kept for people.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from distdbg.client.agent_client import AgentClient
from distdbg.client.feed.connections import FeedConnection, JobRoute
from distdbg.errors import DistError, DistNetworkError, UsageError

#: How long a host that did not answer is left alone.
_REST_S: Final = 3.0
#: The agent has room for 64 clients, and there are other dashboards.
MOST_HOSTS: Final = 24


class FeedConnections:
    """Used by one thread. Connections are made when they are wanted."""

    def __init__(
        self, door: JobRoute, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._door = door
        self._timeout_s = timeout_s
        self._clock = clock
        self._root: FeedConnection | None = None
        self._hosts: dict[str, FeedConnection] = {}
        self._rests: dict[str, float] = {}
        self.has_via = True
        """Whether other hosts can be asked at all."""
        self.why_not: dict[str, str] = {}
        """By host: why it does not answer."""

    @property
    def is_open(self) -> bool:
        return self._root is not None

    @property
    def hello(self) -> Mapping[str, Any]:
        """Who answers; {} when nobody does."""
        return self._root.hello if self._root is not None else {}

    def root(self) -> FeedConnection:
        """The agent that knows the job. DistError when nobody answers."""
        if self._root is None:
            self._root = self._door.open(self._timeout_s)
        return self._root

    def ask(self, do: str, **arguments: Any) -> Any:
        """Of the first agent. After a DistNetworkError the connection is gone."""
        try:
            return self.root().ask(do, timeout_s=self._timeout_s, **arguments)
        except DistNetworkError as error:
            if not is_refusal(error):
                self.close()
            raise

    def ask_host(self, host: str, do: str, **arguments: Any) -> Any | None:
        """Of one host; None when it cannot be asked now."""
        root = self.root()
        if host in ("", root.hello["host"]):
            return self.ask(do, **arguments)
        client = self._of(host)
        if client is None:
            return None
        try:
            return client.ask(do, timeout_s=self._timeout_s, **arguments)
        except DistError as error:
            if not is_refusal(error):
                self._drop(host, error)
            return None

    def close(self) -> None:
        for client in [*self._hosts.values(), *([self._root] if self._root else [])]:
            with suppress(OSError):
                client.close()
        self._hosts.clear()
        self._root = None

    def _of(self, host: str) -> FeedConnection | None:
        found = self._hosts.get(host)
        if found is not None or not self.has_via:
            return found
        if self._clock() < self._rests.get(host, 0.0):
            return None
        if len(self._hosts) >= MOST_HOSTS:
            oldest = next(iter(self._hosts))
            self._hosts.pop(oldest).close()
        try:
            found = self._hosts[host] = open_host(self._door, host, self._timeout_s)
        except DistError as error:
            self._drop(host, error)
            if is_unknown(error) or isinstance(error, UsageError):
                self.has_via = False
            return None
        self.why_not.pop(host, None)
        return found

    def _drop(self, host: str, error: DistError) -> None:
        client = self._hosts.pop(host, None)
        if client is not None:
            client.close()
        self._rests[host] = self._clock() + _REST_S
        self.why_not[host] = error.what


def open_host(door: JobRoute, host: str, timeout_s: float) -> FeedConnection:
    """A connection of its own to the agent of a host. DistError: there is no way there."""
    client = door.open(timeout_s)
    if client.hello["host"] == host:
        return client
    try:
        if not isinstance(client, AgentClient) or not hasattr(client, "via"):
            raise UsageError(f"host {host} cannot be asked from here")
        found: FeedConnection = client.via(host)
    except BaseException:
        client.close()
        raise
    return found


@contextmanager
def opened(door: JobRoute, host: str | None, timeout_s: float) -> Iterator[FeedConnection]:
    """A connection for one question; None: the agent that knows the job."""
    client = door.open(timeout_s) if host is None else open_host(door, host, timeout_s)
    try:
        yield client
    finally:
        client.close()


def is_refusal(error: DistError) -> bool:
    """Whether somebody answered, and the connection is as good as before."""
    return not isinstance(error, DistNetworkError) or bool(getattr(error, "type", ""))


def is_unknown(error: DistError) -> bool:
    """Whether the agent does not know the method."""
    return "there is no method" in error.what
