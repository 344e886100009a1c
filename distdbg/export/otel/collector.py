"""Sends the lines of `file` to a collector instead: OTLP over HTTP, as JSON.

    collector = Collector("http://localhost:4318")
    write(run, collector)
    collector.rejected

One request is one line; the next goes out when the collector has taken it, so one that is slow makes the
export slow and nothing larger. What may pass by itself (no connection, 429, 502 to 504) is tried again for
some seconds.
"""

from __future__ import annotations

import gzip
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from distdbg.errors import DistNetworkError, UsageError
from distdbg.export.http.in_time import (
    MAX_ANSWER_NBYTES,
    RequestTimer,
    WatchedConnection,
    WatchedSecureConnection,
)

_PATH: Final = "/v1/traces"
_TIMEOUT_S: Final = 10.0
#: In all, for one request.
_PATIENCE_S: Final = 30.0
_PAUSE_S: Final = 0.5
_PASSING: Final = frozenset((429, 502, 503, 504))


class _Stay(urllib.request.HTTPRedirectHandler):
    """Spans go where they were meant to, and headers with a secret too."""

    def http_error_302(
        self, req: urllib.request.Request, fp: object, code: int, msg: str, headers: object
    ) -> None:
        """Nor is it looked at where to: that may be no address."""

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _Http(urllib.request.HTTPHandler):
    """Opens connections that a watch can end. urllib's: a collector may be behind the proxy of http_proxy."""

    def __init__(self, watch: RequestTimer) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Made(WatchedConnection, self._watch), request)


class _Https(urllib.request.HTTPSHandler):
    """The same over TLS."""

    def __init__(self, watch: RequestTimer, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._watch = watch
        self._how = {} if context is None else {"context": context}

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Made(WatchedSecureConnection, self._watch), request, **self._how)


class _Made:
    """Makes connections of one watch."""

    def __init__(
        self, kind: type[WatchedConnection | WatchedSecureConnection], watch: RequestTimer
    ) -> None:
        self._kind, self._watch = kind, watch

    def __call__(self, host: str, /, **how: Any) -> WatchedConnection | WatchedSecureConnection:
        connection = self._kind(host, **how)
        connection.watch = self._watch
        return connection


class OtlpCollector:
    """Where `write` of a file can write to."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        patience_s: float = _PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`url`: as OTEL_EXPORTER_OTLP_ENDPOINT, or with the path."""
        self.url = to_endpoint(url)
        self.sent = 0
        """Requests."""
        self.rejected = 0
        """Spans that it did not want."""
        self.why = ""
        self._headers = {
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
            **(headers or {}),
        }
        self._patience_s, self._clock, self._sleep = patience_s, clock, sleep
        self._timeout_s = min(_TIMEOUT_S, patience_s)
        self._watch = RequestTimer()
        context = read_context(os.environ) if self.url.startswith("https:") else None
        self._opener = urllib.request.build_opener(
            _Stay, _Http(self._watch), _Https(self._watch, context)
        )

    def write(self, line: bytes, /) -> int:
        """Send one request; DistNetworkError when it is not taken."""
        body = gzip.compress(line, compresslevel=1)
        deadline = self._clock() + self._patience_s
        pause_s = _PAUSE_S
        while True:
            why, may_pass = self._post(body)
            if not why:
                self.sent += 1
                return len(line)
            if not may_pass or self._clock() + pause_s > deadline:
                raise DistNetworkError(
                    f"{self.url} does not take spans: {why}",
                    details=[f"it has taken {self.sent:,} requests before"],
                    hint="--output FILE writes them; a collector's receiver otlpjsonfile reads that",
                )
            self._sleep(pause_s)
            pause_s *= 2

    def _post(self, body: bytes) -> tuple[str, bool]:
        """Why it was not taken, and whether that may pass; '' when it was."""
        request = urllib.request.Request(self.url, body, self._headers, method="POST")
        try:
            with (
                self._watch.ended_after(self._timeout_s),
                self._opener.open(request, timeout=self._timeout_s) as answer,
            ):
                self._read(answer.read(MAX_ANSWER_NBYTES))
                if self._watch.is_over:
                    return "no answer in time", True
        except urllib.error.HTTPError as error:
            with error:
                return f"HTTP {error.code} {error.reason}", error.code in _PASSING
        except (OSError, HTTPException) as error:
            if self._watch.is_over:
                return "no answer in time", True
            if not isinstance(error, urllib.error.URLError):
                return getattr(error, "strerror", None) or str(error) or type(error).__name__, True
            return str(getattr(error.reason, "strerror", None) or error.reason), True
        return "", False

    def _read(self, answer: bytes) -> None:
        """What was taken in part."""
        with suppress(ValueError, AttributeError, TypeError, RecursionError):  # no JSON: taken
            reported = json.loads(answer).get("partialSuccess") or {}
            self.rejected += int(reported.get("rejectedSpans", 0))
            self.why = str(reported.get("errorMessage", ""))[:200] or self.why


def read_context(environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """The certificates of OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_KEY and _CLIENT_CERTIFICATE; None: those of
    the system. UsageError for files that cannot be used."""
    ca, key, certificate = (
        environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}")
        or environ.get(f"OTEL_EXPORTER_OTLP_{name}")
        for name in ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")
    )
    if not ca and not certificate:
        return None
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if certificate:
            context.load_cert_chain(certificate, key or None)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        named = ", ".join(filter(None, (ca, certificate, key)))
        raise UsageError(
            f"the certificates of the collector cannot be loaded: {error} ({named})"
        ) from error
    return context


def is_url(output: str | None) -> bool:
    """Whether spans are to be sent rather than written."""
    return output is not None and output.startswith(("http://", "https://"))


def to_endpoint(url: str) -> str:
    """Put OTLP's path for spans behind a URL, unless it is there."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise UsageError(f"--output {url}: has no host", hint="http://localhost:4318")
    path = parts.path.rstrip("/")
    if not path.endswith(_PATH):
        path += _PATH
    return urlunsplit(parts._replace(path=path))


def read_headers(text: str) -> dict[str, str]:
    """OTEL_EXPORTER_OTLP_HEADERS: 'name=value,name=value'."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}
