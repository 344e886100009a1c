"""Metrics to a Pushgateway, for jobs that are over before anybody scrapes them.

    PUT <url>/metrics/job/distdbg/run/0412/host/n01

replaces all that this host of this run has pushed before, so it is one group of metrics however often
it is done. The gateway keeps the last one until somebody deletes it: of a job that is over that is the
point.

Remote write is not here: it would need a queue, retries and a codec of its own (snappy) to do what the
gateway or an OpenTelemetry collector does, to which the same metrics go by OTLP.

The standard library's HTTP: no proxy and no redirect is followed, and the deadline holds for all of it
but the look-up of the host's name.
"""

from __future__ import annotations

import base64
from http.client import HTTPException
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from distdbg.errors import ConfigError, DistNetworkError
from distdbg.export.http.in_time import RequestTimer, WatchedConnection, WatchedSecureConnection
from distdbg.export.metrics.bounds import clean
from distdbg.export.metrics.model import Metrics
from distdbg.export.metrics.text import TEXT_TYPE, to_text

#: As much of an answer as is read; what matters is in its first line.
_MAX_NBYTES: Final = 1024


class Gateway:
    """A Pushgateway at a URL; ConfigError where that is none."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigError(
                f"{_without_password(url)!r} is not the URL of a Pushgateway",
                hint="as in http://gateway.example:9091",
            )
        self._host, self._port = host, port
        self._is_secure = parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        self._headers = {"Content-Type": TEXT_TYPE, "Connection": "close"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self.name = f"{parts.scheme}://{host}{f':{port}' if port else ''}{self._path}"
        """The URL without who asks: for messages."""

    def push(self, metrics: Metrics, timeout_s: float) -> None:
        """Replace what this host of the run has pushed; blocks. DistNetworkError when it did not arrive."""
        path = self._path + group_path(metrics.run, metrics.host)
        connection = self._connection(timeout_s)
        watch = connection.watch = RequestTimer()
        try:
            with watch.ended_after(timeout_s):
                connection.request("PUT", path, to_text(metrics), self._headers)
                answer = connection.getresponse()
                words = answer.read(_MAX_NBYTES)
            if watch.is_over:
                raise TimeoutError
        except (OSError, HTTPException, UnicodeError) as error:
            is_late = watch.is_over or isinstance(error, TimeoutError)
            why = "no answer in time" if is_late else _why(error)
            raise DistNetworkError(
                f"the Pushgateway {self.name} did not take the metrics within {timeout_s:.2g} s: {why}"
            ) from error
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            first = words.decode("utf-8", "replace").strip().splitlines()
            raise DistNetworkError(
                f"the Pushgateway {self.name} said {answer.status} {answer.reason}",
                details=[line[:200] for line in first[:1]],
            )

    def _connection(self, timeout_s: float) -> WatchedConnection | WatchedSecureConnection:
        made = WatchedSecureConnection if self._is_secure else WatchedConnection
        return made(self._host, self._port, timeout=timeout_s)


def group_path(run: str, host: str) -> str:
    """Where a gateway keeps what one host of a run pushes."""
    return "/metrics/job/distdbg" + _part("run", run) + _part("host", host)


def _part(name: str, value: str) -> str:
    value = clean(value)
    if value not in ("", ".", "..") and "/" not in value:
        return f"/{name}/{quote(value, safe='')}"
    # What a path cannot say: a slash, or nothing, or what it would leave out.
    words = base64.urlsafe_b64encode(value.encode()).decode() or "="
    return f"/{name}@base64/{words}"


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _without_password(url: str) -> str:
    return url.rpartition("@")[2]
