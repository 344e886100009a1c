def sub(path, pairs):
    s=open(path).read()
    for a,b in pairs:
        assert s.count(a)==1,(path,a,s.count(a))
        s=s.replace(a,b)
    open(path,'w').write(s)
sub('distdbg/agent/tracing/exporters.py',[
('''    if signal == "traces":
        from opentelemetry.exporter.otlp.proto.http import trace_exporter

        return trace_exporter.OTLPSpanExporter()
    if signal == "logs":
        from opentelemetry.exporter.otlp.proto.http import _log_exporter

        return _log_exporter.OTLPLogExporter()
    from opentelemetry.exporter.otlp.proto.http import metric_exporter

    return metric_exporter.OTLPMetricExporter()
''','''    from distdbg.agent.tracing.session import BoundedSession

    session = BoundedSession()
    if signal == "traces":
        from opentelemetry.exporter.otlp.proto.http import trace_exporter

        return trace_exporter.OTLPSpanExporter(session=session)
    if signal == "logs":
        from opentelemetry.exporter.otlp.proto.http import _log_exporter

        return _log_exporter.OTLPLogExporter(session=session)
    from opentelemetry.exporter.otlp.proto.http import metric_exporter

    return metric_exporter.OTLPMetricExporter(session=session)
'''),
])
p='distdbg/export/metrics/push.py'
s=open(p).read()
i=s.index('@contextmanager\ndef _ended_after'); j=s.index('def _why(')
s=s[:i]+s[j:]
open(p,'w').write(s)
sub(p,[
('''import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
''','''import base64
from http.client import HTTPException
'''),
('from distdbg.errors import ConfigError, DistNetworkError\n','from distdbg.errors import ConfigError, DistNetworkError\nfrom distdbg.export.http.in_time import Watch, WatchedConnection, WatchedSecureConnection\n'),
('''        connection = self._connection(timeout_s)
        try:
            with _ended_after(connection, timeout_s):
                connection.request''','''        connection = self._connection(timeout_s)
        watch = connection.watch = Watch()
        try:
            with watch.ended_after(timeout_s):
                connection.request'''),
('why = "no answer in time" if isinstance(error, TimeoutError) else _why(error)','is_late = watch.is_over or isinstance(error, TimeoutError)\n            why = "no answer in time" if is_late else _why(error)'),
('''    def _connection(self, timeout_s: float) -> HTTPConnection:
        made = HTTPSConnection if self._is_secure else HTTPConnection
        return made(''','''    def _connection(self, timeout_s: float) -> WatchedConnection | WatchedSecureConnection:
        made = WatchedSecureConnection if self._is_secure else WatchedConnection
        return made('''),
])
sub('distdbg/export/otel/post.py',[
('''class Collector:
''','''class _Http(urllib.request.HTTPHandler):
    """Opens connections that a watch can end."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Made(WatchedConnection, self._watch), request)


class _Https(urllib.request.HTTPSHandler):
    """The same over TLS."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Made(WatchedSecureConnection, self._watch), request)


class _Made:
    """Makes connections of one watch."""

    def __init__(
        self, kind: type[WatchedConnection | WatchedSecureConnection], watch: Watch
    ) -> None:
        self._kind, self._watch = kind, watch

    def __call__(self, host: str, /, **how: Any) -> WatchedConnection | WatchedSecureConnection:
        connection = self._kind(host, **how)
        connection.watch = self._watch
        return connection


class Collector:
'''),
('''        self._opener = urllib.request.build_opener(_Stay)
''','''        self._timeout_s = min(_TIMEOUT_S, patience_s)
        self._watch = Watch()
        self._opener = urllib.request.build_opener(_Stay, _Http(self._watch), _Https(self._watch))
'''),
('''            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                self._read(answer.read(_MOST_ANSWER))
''','''            with (
                self._watch.ended_after(self._timeout_s),
                self._opener.open(request, timeout=self._timeout_s) as answer,
            ):
                self._read(answer.read(MOST_ANSWER_NBYTES))
                if self._watch.is_over:
                    return "no answer in time", True
'''),
('''        except urllib.error.URLError as error:
''','''        except (OSError, HTTPException) as error:
            if self._watch.is_over:
                return "no answer in time", True
            if not isinstance(error, urllib.error.URLError):
                return getattr(error, "strerror", None) or str(error) or type(error).__name__, True
'''),
('''        except (OSError, HTTPException) as error:
            return getattr(error, "strerror", None) or str(error) or type(error).__name__, True
        return "", False
''','''        return "", False
'''),
('from http.client import HTTPException\nfrom typing import Final\n','from http.client import HTTPException, HTTPResponse\nfrom typing import Any, Final\n'),
('_MOST_ANSWER: Final = 1 << 16\n',''),
('from distdbg.errors import DistNetworkError, UsageError\n','''from distdbg.errors import DistNetworkError, UsageError
from distdbg.export.http.in_time import (
    MOST_ANSWER_NBYTES,
    Watch,
    WatchedConnection,
    WatchedSecureConnection,
)
'''),
])
