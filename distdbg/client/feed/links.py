"""The connections of a live feed: one to the agent that knows the job, and one to each host that is asked.

Those to other hosts go through the first one's agent. A host that does not answer is left alone for a
moment, and the others are none the worse; what is known of why is kept for people.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from distdbg.client.agent_client import AgentClient
from distdbg.client.feed.asking import AgentQuestion, Asking, is_refusal, is_unknown
from distdbg.client.feed.connections import FeedConnection, JobRoute
from distdbg.errors import DistError, DistNetworkError, UsageError

#: How long a host that did not answer is left alone.
_REST_S: Final = 3.0
Result = TypeVar("Result")
#: The agent has room for 64 clients, and there are other dashboards.
MAX_HOSTS: Final = 24


class FeedConnections:
    """Used by one thread. Connections are made when they are wanted."""

    def __init__(
        self, route: JobRoute, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._route = route
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
        """What the agent says of itself; {} when none answers."""
        return self._root.hello if self._root is not None else {}

    def root(self) -> FeedConnection:
        """The agent that knows the job. DistError when nobody answers."""
        if self._root is None:
            self._root = self._route.open(self._timeout_s)
        return self._root

    def run(self, asking: Asking[Result]) -> Result:
        """Put its questions, one after the other. After a DistNetworkError the connection is gone."""
        try:
            question = next(asking)
            while True:
                try:
                    answer = self._answer(question)
                except DistError as error:
                    question = asking.throw(error)
                else:
                    question = asking.send(answer)
        except StopIteration as done:
            result: Result = done.value
            return result

    def _answer(self, question: AgentQuestion) -> Any | None:
        """None when that host cannot be asked now."""
        root, host = self.root(), question.host
        client = root if host in ("", root.hello["host"]) else self._of(host)
        if client is None:
            return None
        try:
            return client.ask(question.do, timeout_s=self._timeout_s, **question.arguments)
        except DistError as error:
            if client is not root:
                if not is_refusal(error):
                    self._drop(host, error)
                return None
            if isinstance(error, DistNetworkError) and not is_refusal(error):
                self.close()
            raise

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
        if len(self._hosts) >= MAX_HOSTS:
            oldest = next(iter(self._hosts))
            self._hosts.pop(oldest).close()
        try:
            found = self._hosts[host] = open_host(self._route, host, self._timeout_s)
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


def open_host(route: JobRoute, host: str, timeout_s: float) -> FeedConnection:
    """A connection of its own to the agent of a host. DistError: there is no way there."""
    client = route.open(timeout_s)
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
def opened(route: JobRoute, host: str | None, timeout_s: float) -> Iterator[FeedConnection]:
    """A connection for one question; None: the agent that knows the job."""
    client = route.open(timeout_s) if host is None else open_host(route, host, timeout_s)
    try:
        yield client
    finally:
        client.close()
