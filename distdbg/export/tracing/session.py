"""What OpenTelemetry's HTTP exporters send with: a session of `requests` that reads a bounded answer in time.

Left to itself it reads all of an answer, however long, and has a time limit for each read alone: a collector
that is none, or means no good, would grow the agent or hold its thread. A collector's answer is a few bytes.
"""

from __future__ import annotations

from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from distdbg.export.http.in_time import MAX_ANSWER_NBYTES, RequestTimer, Watched

#: Where a request has no time limit of its own.
_TIMEOUT_S: Final = 10.0


class BoundedSession(requests.Session):
    """Used by one thread at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._watch = RequestTimer()
        self.headers["Accept-Encoding"] = "identity"
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter(self._watch))

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """requests.RequestException for an answer that is too long or too slow."""
        timeout_s = kwargs.get("timeout")
        if not isinstance(timeout_s, (int, float)):
            timeout_s = _TIMEOUT_S
        kwargs["stream"] = True
        with self._watch.ended_after(timeout_s):
            try:
                response = super().send(request, **kwargs)
                _read(response)
            except Exception as error:
                if self._watch.is_over:
                    raise requests.ReadTimeout("no answer in time", request=request) from error
                raise
            if self._watch.is_over:
                raise requests.ReadTimeout("no answer in time", request=request)
        return response


def _read(response: requests.Response) -> None:
    """The body, as it was sent: nobody was asked to compress it."""
    parts: list[bytes] = []
    nbytes = 0
    try:
        while data := response.raw.read(MAX_ANSWER_NBYTES // 4, decode_content=False):
            parts.append(data)
            nbytes += len(data)
            if nbytes > MAX_ANSWER_NBYTES:
                raise requests.RequestException(
                    f"the answer has more than {MAX_ANSWER_NBYTES // 1024} KiB"
                )
    except BaseException:
        response.close()
        raise
    # Where `requests` keeps what it has read of a response.
    response._content = b"".join(parts)
    response._content_consumed = True
    response.raw.release_conn()


class _Adapter(HTTPAdapter):
    """Its connections show their sockets to a watch, also those by way of a proxy."""

    def __init__(self, watch: RequestTimer) -> None:
        self._pools = _watched_pools(watch)
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pools
        return manager


def _watched_pools(watch: RequestTimer) -> dict[str, type[HTTPConnectionPool]]:
    own = {"watch": watch}
    plain = type("Plain", (Watched, HTTPConnection), own)
    secure = type("Secure", (Watched, HTTPSConnection), own)
    return {
        "http": type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }
