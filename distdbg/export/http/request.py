"""One request after the other on a connection: what is asked, whether it may be, and the answer's bytes."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from distdbg.export.http.access import AccessGate
from distdbg.export.http.pages import Page, PageAnswer, text_answer, zipped
from distdbg.export.http.peers import Ends, uid_of_peer

if TYPE_CHECKING:
    import socketserver

#: How long a request may take to come, and its answer to be made and read; each.
PATIENCE_S: Final = 10.0
#: Told to anybody: that somebody answers is seen by the open port already.
HEALTH: Final = "/healthz"
_ALLOWED: Final = "GET, HEAD"

_log = logging.getLogger("distdbg.export")


class HttpConnection:
    """One connection; its thread works on it, that of the server looks whether it takes too long."""

    def __init__(
        self,
        sock: socket.socket,
        ends: Ends,
        let_in: Callable[[HttpConnection], bool] = lambda _: True,
    ) -> None:
        """`let_in`: whether there is a place for one that may read."""
        self.socket = sock
        self.ends = ends
        self.let_in = let_in
        self.is_let_in = False
        """Whether it may read, and has a place."""
        self.came = self.since = time.monotonic()
        """When something happened last: it came, a request was read, an answer written."""
        self.is_idle = False
        """Whether it has had an answer and asked nothing more."""
        self.has_asked = False
        """Whether a request has come as a whole."""
        self.is_last = False
        """Whether nothing is answered after what is being answered now."""

    def happened(self, *, is_idle: bool) -> None:
        self.since, self.is_idle, self.has_asked = time.monotonic(), is_idle, True

    def end(self) -> None:
        """Let whoever waits in it go on; from any thread."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended

    def serve(self, pages: Mapping[str, Page], gate: AccessGate) -> None:
        """Answer until the other end has enough. Never raises."""
        try:
            _Requests(self, pages, gate)
        except (OSError, ValueError):
            return  # the other end went, or was ended
        finally:
            self.socket.close()


class _Requests(BaseHTTPRequestHandler):
    """The standard library reads; what it would write of itself is replaced by one line."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_S
    wbufsize = -1  # an answer goes out as a whole

    def __init__(
        self, connection: HttpConnection, pages: Mapping[str, Page], gate: AccessGate
    ) -> None:
        self._connection = connection
        self._pages = pages
        self._gate = gate
        self._uid: int | None = None
        self._is_known = False
        super().__init__(connection.socket, connection.ends.peer, _NO_SERVER)

    def parse_request(self) -> bool:
        is_good = super().parse_request()
        self._connection.happened(is_idle=False)
        return is_good

    def do_GET(self) -> None:
        self._write(self._answer())

    def do_HEAD(self) -> None:
        self._write(self._answer())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.close_connection = True
        if code == 501:  # a method that is none of ours
            self._write(text_answer(405, f"there is only {_ALLOWED}"))
            return
        self._write(
            text_answer(code, message or self.responses.get(code, ("not understood", ""))[0])
        )

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody is told of each request."""

    def version_string(self) -> str:
        return "distdbg"

    # ------------------------------------------------------------------------------- parts

    def _answer(self) -> PageAnswer:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # what it sends beside is not read
        try:
            path = urlsplit(self.path).path or "/"
        except ValueError:
            return text_answer(400, "the path cannot be read")
        if path == HEALTH:
            return text_answer(200, "ok")
        why_not = self._why_not()
        if why_not:
            return text_answer(401, why_not)
        if not self._connection.let_in(self._connection):
            self.close_connection = True
            return text_answer(503, "busy")
        page = self._pages.get(path)
        if page is None:
            return text_answer(404, f"there is only {', '.join(sorted([*self._pages, HEALTH]))}")
        try:
            return page(", ".join(self.headers.get_all("Accept", [])))
        except Exception:  # noqa: BLE001  # of one page; the others are none the worse
            _log.exception("%s cannot be answered", path)
            return text_answer(500, "this cannot be answered; the log says why")

    def _why_not(self) -> str:
        ends = self._connection.ends
        here = ends.are_local
        authorization = self.headers.get("Authorization")
        if here and not self._is_known and authorization is None:
            self._uid, self._is_known = uid_of_peer(ends), True
        return self._gate.why_not(
            uid=self._uid,
            is_local=here,
            host=self.headers.get("Host"),
            authorization=authorization,
        )

    def _write(self, answer: PageAnswer) -> None:
        self.close_connection |= self._connection.is_last
        accepts = self.headers.get("Accept-Encoding", "") if hasattr(self, "headers") else ""
        body, is_zipped = zipped(answer, accepts)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if is_zipped:
            self.send_header("Content-Encoding", "gzip")
        if answer.status == 401:
            self.send_header("WWW-Authenticate", 'Bearer realm="distdbg"')
        if answer.status == 405:
            self.send_header("Allow", _ALLOWED)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()
        self._connection.happened(is_idle=True)


#: The standard library's handler keeps it and does not look at it.
_NO_SERVER: socketserver.BaseServer = None  # type: ignore[assignment]  # there is none
