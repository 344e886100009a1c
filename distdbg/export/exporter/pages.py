"""The server of `distdbg exporter`: its runs on one page, and where agents serve theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distdbg.export.exporter.runs import Runs
from distdbg.export.http.pages import JSON, PageAnswer, make_index, text_answer
from distdbg.export.http.sd import MetricsTarget, write_targets
from distdbg.export.http.server import Server
from distdbg.export.metrics.negotiate import negotiate
from distdbg.export.outlets.serving import ANY, LINKS, make_gate, open_web_guard
from distdbg.export.outlets.targets import Neighbours
from distdbg.launch.endpoint import join_endpoint
from distdbg.launch.exports import ExportOptions
from distdbg.record.host import host_name


class MetricsExporter:
    def __init__(self, folders: Sequence[Path], exports: ExportOptions) -> None:
        """OSError when it cannot listen there."""
        assert exports.listen is not None
        host, port = exports.listen
        self._neighbours = Neighbours()
        self._neighbours.look()  # so that the first answer knows them
        self._runs = Runs(folders, neighbours=self._neighbours)
        pages = {
            "/": lambda _: make_index("distdbg exporter", LINKS),
            "/metrics": self._metrics,
            "/sd": self._sd,
        }
        guard = open_web_guard()
        self.scheme = "http" if guard is None else "https"
        self._server = Server(pages, make_gate(exports), guard=guard)
        try:
            port = self._server.listen(host, port)
        except BaseException:
            self.close()
            raise
        self._host = host_name()
        self.address = join_endpoint(self._host if host in ANY else host, port)
        self._server.start()
        self._neighbours.start()

    def close(self) -> None:
        """End all threads, and let go of all files."""
        self._server.close()
        self._neighbours.close()
        self._runs.close()

    def _metrics(self, accept: str) -> PageAnswer:
        found = self._runs.metrics()
        if found is None:
            return text_answer(503, "the runs could not be read in time")
        writer = negotiate(accept)
        return PageAnswer(writer.write(*found), writer.content_type)

    def _sd(self, _: str) -> PageAnswer:
        own = MetricsTarget(self.address, "", self._host, self.scheme)
        return PageAnswer(write_targets([own, *self._neighbours.targets()]), JSON)
