"""The agent's HTTP server: /metrics of this host, /sd of all jobs of this user that are known here.

A port that somebody else has is no reason to be silent: then it is another, free one, and the port that was
asked for is taken as soon as it is free. Whoever has it, an agent of another job mostly, lists this one in
its /sd; so one entry of a scraper finds all jobs of a host. Who scrapes the other port meanwhile goes on
with it.
"""

from __future__ import annotations

import errno
import os
import pwd
from typing import Final

from distdbg.errors import ConfigError
from distdbg.export.http.access import AccessGate, find_uids
from distdbg.export.http.pages import JSON, PageAnswer, make_index, text_answer
from distdbg.export.http.sd import MetricsTarget, write_targets
from distdbg.export.http.server import Server
from distdbg.export.metrics.negotiate import negotiate
from distdbg.export.outlets.source import NotInTime, OutletSource
from distdbg.export.outlets.targets import Neighbours
from distdbg.launch.endpoint import join_endpoint
from distdbg.launch.exports import ExportOptions, is_loopback
from distdbg.secure.guard import Guard, open_guard
from distdbg.secure.settings import is_on

ANY: Final = ("0.0.0.0", "::", "")  # not bound, but distinguished
_NO_HTTPS: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: 42\r\n\r\nDISTDBG_TLS=1 is set: ask with https here\n"
)
_TAKE_OVER_NS: Final = 2_000_000_000
LINKS: Final = {
    "/metrics": "the numbers, for Prometheus",
    "/sd": "where there are more of them, for its http_sd_configs",
    "/healthz": "whether this is alive",
}


class ServerOutlet:
    """One outlet: the server and what it is asked."""

    def __init__(self, agent: OutletSource, exports: ExportOptions) -> None:
        """ConfigError when nothing can be served there."""
        assert exports.listen is not None
        self._agent = agent
        self._host, self._asked = exports.listen
        self._metering = agent.metering
        self._neighbours = Neighbours(agent.run_name, agent.host)
        pages = {
            "/": lambda _: make_index(f"distdbg: run {agent.run_name} on {agent.host}", LINKS),
            "/metrics": self._metrics,
            "/sd": lambda _: PageAnswer(write_targets(self.targets()), JSON),
        }
        guard = open_web_guard()
        self.scheme: str = "http" if guard is None else "https"
        self._server = Server(pages, make_gate(exports), guard=guard)
        self._has_asked = True
        self._next_ns = 0
        said = ""
        try:
            self._port = self._server.listen(self._host, self._asked)
        except OSError as error:
            where = join_endpoint(self._host, self._asked)
            if error.errno != errno.EADDRINUSE:
                self._server.close()
                raise ConfigError(
                    f"metrics cannot be served at {where}: {error.strerror or error}"
                ) from error
            from distdbg.runtime.store.holder import holder_of  # slow to load, seldom needed

            self._has_asked = False
            self._port = self._server.listen(self._host, 0)
            said = f"; port {self._asked} is held by {holder_of(self._asked)}"
        self._server.start()
        if self._has_asked:
            self._neighbours.start()
        agent.print_lines([f"metrics: {self.scheme}://{self.address}/metrics{said}"])

    @property
    def address(self) -> str:
        """Where a scraper reaches this server."""
        host = self._host
        if host in ANY:
            host = self._agent.addr or self._agent.host
        return join_endpoint(host, self._port)

    def hosts(self) -> dict[str, str]:
        """By other hosts of the job where they serve theirs, as far as that leads there from elsewhere."""
        return {
            host: address
            for host, address in self._metering.sums.addresses().items()
            if not is_loopback(address.rpartition(":")[0].strip("[]"))
        }

    def targets(self) -> list[MetricsTarget]:
        """All that is known by now; nobody is asked for it."""
        run = self._agent.run_name
        own = [MetricsTarget(self.address, run, self._agent.host, self.scheme)]
        others = [
            MetricsTarget(address, run, host, self.scheme)  # a job has TLS on all hosts or on none
            for host, address in self.hosts().items()
        ]
        return [*own, *others, *self._neighbours.targets()]

    def tick(self, now_ns: int) -> None:
        if self._has_asked or now_ns < self._next_ns:
            return
        self._next_ns = now_ns + _TAKE_OVER_NS
        try:
            self._server.listen(self._host, self._asked)
        except OSError:
            return  # it is held still
        self._has_asked = True
        self._neighbours.start()

    def begin_anew(self) -> None:
        """The totals go on."""

    def close(self, deadline_ns: int) -> None:
        self._metering.close()
        self._neighbours.close()
        self._server.close()

    def _metrics(self, accept: str) -> PageAnswer:
        try:
            metrics = self._metering.metrics()
        except NotInTime as error:
            return text_answer(503, error.what)
        writer = negotiate(accept)
        return PageAnswer(writer.write(metrics), writer.content_type)


def open_web_guard() -> Guard | None:
    """Encrypts what others read, where DISTDBG_TLS=1; they need no certificate. ConfigError."""
    from distdbg.runtime.rendezvous.token import run_token

    return open_guard(run_token(), notice=_NO_HTTPS, is_web=True) if is_on() else None


def make_gate(exports: ExportOptions) -> AccessGate:
    """The gate: who may read. ConfigError for a token file that cannot be trusted."""
    token = b""
    if exports.token_file is not None:
        from distdbg.runtime.rendezvous.token import read_token

        token = read_token(exports.token_file, variable="DISTDBG_METRICS_TOKEN_FILE")
    known = {}
    for user in exports.users:
        try:
            known[user] = pwd.getpwnam(user).pw_uid
        except KeyError:
            continue  # not of this host
    return AccessGate(own_uid=os.getuid(), uids=find_uids(exports.users, known), token=token)
