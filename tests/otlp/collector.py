"""A collector for tests: takes OTLP over HTTP and gRPC, decoded by OpenTelemetry's own definitions."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

SIGNALS = {
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
    "/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse),
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
}


class Taken:
    """What came, in order."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.delay_s = 0.0
        self.end = threading.Event()

    def take(self, request: Any) -> None:
        self.requests.append(request)

    def spans(self) -> list[tuple[dict[str, Any], Any]]:
        """Each span with the attributes of its resource."""
        return self._each(ExportTraceServiceRequest, "spans", "spans")

    def logs(self) -> list[tuple[dict[str, Any], Any]]:
        return self._each(ExportLogsServiceRequest, "logs", "log_records")

    def _each(self, kind: type, signal: str, items: str) -> list[tuple[dict[str, Any], Any]]:
        return [
            (plain(resource.resource.attributes), item)
            for request in list(self.requests)
            if isinstance(request, kind)
            for resource in getattr(request, f"resource_{signal}")
            for scope in getattr(resource, f"scope_{signal}")
            for item in getattr(scope, items)
        ]

    def metrics(self) -> dict[str, Any]:
        """By name, the newest."""
        return {
            metric.name: metric
            for request in list(self.requests)
            if isinstance(request, ExportMetricsServiceRequest)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def until(self, is_so: Callable[[], object], what: str, timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
            time.sleep(0.02)  # what another process sends announces itself to nobody here


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as a dict."""
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, which)


@contextmanager
def over_http(port: int = 0) -> Iterator[tuple[Taken, int]]:
    """What comes, and the port."""
    taken = Taken()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if taken.delay_s and taken.end.wait(taken.delay_s):
                return
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request_type, response_type = SIGNALS[self.path]
            taken.headers.append(dict(self.headers))
            taken.take(request_type.FromString(body))
            self._answer(200, response_type().SerializeToString())

        def _answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass  # whoever sends has gone

    server = Server(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield taken, server.server_address[1]
    finally:
        taken.end.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def over_grpc() -> Iterator[tuple[Taken, int]]:
    """The same over gRPC."""
    import grpc
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

    taken = Taken()

    class Service:
        def __init__(self, response: Any) -> None:
            self._response = response

        def Export(self, request: Any, context: Any) -> Any:
            taken.headers.append(dict(context.invocation_metadata()))
            taken.take(request)
            return self._response()

    pool = ThreadPoolExecutor(2)
    server = grpc.server(pool)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(
        Service(ExportTraceServiceResponse), server
    )
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(
        Service(ExportLogsServiceResponse), server
    )
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(
        Service(ExportMetricsServiceResponse), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield taken, port
    finally:
        server.stop(0).wait()
        pool.shutdown()
