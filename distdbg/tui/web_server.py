"""The server behind `distdbg top --web`: one page, one websocket, and the files that textual-serve brings.

    /?token=...                 sets the cookie, sends on to the page
    /PREFIX/                    the page
    /PREFIX/static/...          its script, style and font
    /PREFIX/ws                  the terminal: starts a dashboard, and carries its output and the keys

The page is ours, because that of textual-serve asks the network for a font.
"""

from __future__ import annotations

import asyncio
import html
import logging
import os
import signal
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import textual_serve.server
from aiohttp import WSMsgType, web
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

from distdbg.errors import UsageError
from distdbg.tui.access import COOKIE, Answer, Gate
from distdbg.tui.cells import one_line

_STATIC: Final = Path(textual_serve.server.__file__).parent / "static"
#: Each is a process.
_MAX_TABS: Final = 8
#: What a dashboard has for its end.
_LEAVING_S: Final = 5.0
_MAX_WORDS: Final = 1 << 14
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
        "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'"
    ),
}
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="static/css/xterm.css">
<style>
@font-face {{
  font-family: "Roboto Mono"; src: url("static/fonts/RobotoMono-VariableFont_wght.ttf");
}}
html, body {{ margin: 0; height: 100%; background: #121212; overflow: hidden; }}
#terminal {{ width: 100vw; height: 100vh; }}
#closed {{
  display: none; position: fixed; inset: auto 0 0 0; padding: 8px; z-index: 9;
  font: 14px monospace; color: #fff; background: #ba3c5b;
}}
.-closed #closed {{ display: block; }}
#closed a {{ color: inherit; }}
</style>
<script src="static/js/textual.js"></script>
</head>
<body>
<div id="terminal" class="textual-terminal"
  data-font-size="15" data-session-websocket-url="{websocket}"></div>
<div id="closed">this dashboard has ended; <a href="">open it again</a></div>
</body>
</html>
"""

log = logging.getLogger("distdbg.tui")


class Tab(AppService):
    """One dashboard: a process that speaks textual's protocol on its pipes."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        write_bytes: Callable[[bytes], Awaitable[None]],
        write_str: Callable[[str], Awaitable[None]],
        close: Callable[[], Awaitable[object]],
    ) -> None:
        async def end() -> None:
            await close()

        super().__init__(
            command[0],
            write_bytes=write_bytes,
            write_str=write_str,
            close=end,
            download_manager=DownloadManager(),
        )
        self._command = list(command)

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        environment = self._build_environment(width=width, height=height)
        environment["TEXTUAL_DRIVER"] = "distdbg.tui.web_driver:TopWebDriver"
        # It ends by itself when its input does; a session of its own, so that Ctrl-C is the server's alone.
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment,
            start_new_session=True,
        )
        self._stdin = process.stdin
        # Its last words are for the browser; textual-serve would print them here.
        assert process.stderr is not None
        self._words_read = asyncio.create_task(_read_last(process.stderr))
        process.stderr = asyncio.StreamReader()
        process.stderr.feed_eof()
        return process

    async def run(self) -> None:
        try:
            await super().run()
        except asyncio.CancelledError:
            # A task within it was cancelled before it began: the process has ended that early.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        words = b""
        with suppress(asyncio.TimeoutError):
            words = await asyncio.wait_for(self._words_read, _LEAVING_S)
        with suppress(ConnectionError):
            if words:
                text = printable_lines(words.decode("utf-8", "replace"))
                await self.remote_write_bytes(b"\x1b[?1049l\x1b[2J\x1b[H" + text.encode())
            await self.remote_close()

    async def stop(self) -> None:
        """End it: in an orderly way if that does not take long."""
        process = self._process
        if process is None:
            return
        with suppress(asyncio.TimeoutError, ConnectionError):
            await asyncio.wait_for(super().stop(), _LEAVING_S)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), _LEAVING_S)
        if process.returncode is None:
            process.kill()
            await process.wait()
        self._process = None


class TopServer:
    """What is behind the gate."""

    def __init__(self, command: Sequence[str], gate: Gate, title: str) -> None:
        self.gate = gate
        self._command = command
        self._title = title
        self._tabs: set[web.WebSocketResponse] = set()

    def make(self) -> web.Application:
        """The application, with the gate before all of it."""

        @web.middleware
        async def let_in(
            request: web.Request,
            handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        ) -> web.StreamResponse:
            return await self._let_in(request, handler)

        app = web.Application(middlewares=[let_in])
        path = self.gate.path
        app.add_routes(
            [
                web.get(path, self._page),
                web.get(f"{path}ws", self._terminal),
                web.static(f"{path}static", _STATIC),
            ]
        )
        app.on_shutdown.append(self._close_tabs)
        return app

    async def _let_in(
        self,
        request: web.Request,
        handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        answer = self.gate.answer(
            path=request.path,
            host=request.headers.get("Host"),
            origin=request.headers.get("Origin"),
            token=request.query.get("token"),
            cookie=request.cookies.get(COOKIE),
        )
        if answer is Answer.REFUSE:
            return web.Response(
                status=403, text="open the address that `distdbg top --web` has printed\n"
            )
        if answer is Answer.GREET:
            response: web.StreamResponse = web.Response(
                status=303, headers={"Location": self.gate.path, **_HEADERS}
            )
            response.set_cookie(
                COOKIE, self.gate.cookie, path=self.gate.path, httponly=True, samesite="Strict"
            )
            return response
        response = await handle(request)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    async def _page(self, request: web.Request) -> web.Response:
        websocket = f"ws://{request.headers['Host']}{self.gate.path}ws"
        page = _PAGE.format(title=html.escape(self._title), websocket=html.escape(websocket))
        return web.Response(text=page, content_type="text/html")

    async def _terminal(self, request: web.Request) -> web.StreamResponse:
        if len(self._tabs) >= _MAX_TABS:
            return web.Response(status=503, text=f"{_MAX_TABS} dashboards are open already\n")
        websocket = web.WebSocketResponse(heartbeat=15, max_msg_size=1 << 16)
        await websocket.prepare(request)
        self._tabs.add(websocket)
        tab = Tab(
            self._command,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=websocket.close,
        )
        try:
            width, height = (_size(request.query.get(name)) for name in ("width", "height"))
            await tab.start(width or 80, height or 24)
            await self._carry(websocket, tab)
        except ConnectionError:
            pass  # the browser is gone
        finally:
            await tab.stop()
            self._tabs.discard(websocket)
            await websocket.close()
        return websocket

    async def _carry(self, websocket: web.WebSocketResponse, tab: Tab) -> None:
        """What the browser says, until it is gone; what makes no sense ends it too."""
        async for message in websocket:
            if message.type != WSMsgType.TEXT:
                continue
            try:
                kind, *rest = message.json()
                if kind == "stdin":
                    await tab.send_bytes(str(rest[0]).encode("utf-8", "replace"))
                elif kind == "resize":
                    width, height = _size(rest[0]["width"]), _size(rest[0]["height"])
                    if width and height:
                        await tab.set_terminal_size(width, height)
                elif kind == "ping":
                    await websocket.send_json(["pong", str(rest[0])])
                elif kind == "blur":
                    await tab.blur()
                elif kind == "focus":
                    await tab.focus()
            except (ValueError, TypeError, LookupError):
                return

    async def _close_tabs(self, app: web.Application) -> None:
        for websocket in set(self._tabs):
            await websocket.close(code=1001, message=b"the server ends")


async def _read_last(stream: asyncio.StreamReader) -> bytes:
    """All of it, as far as it is worth to be shown."""
    words = b""
    while data := await stream.read(1 << 12):
        words = (words + data)[-_MAX_WORDS:]
    return words


def printable_lines(text: str) -> str:
    """What a program said, for a terminal that is told nothing else by it."""
    return "\r\n".join(one_line(line) for line in text.splitlines()) + "\r\n"


def _size(value: object) -> int:
    """A length of a terminal; 0 for nonsense."""
    number = int(value) if isinstance(value, int | str) and str(value).isdecimal() else 0
    return min(number, 500)


def run_server(command: Sequence[str], *, port: int, title: str, say: Callable[[str], None]) -> int:
    """Serve on 127.0.0.1 until SIGINT or SIGTERM."""
    logging.getLogger("textual-serve").setLevel(logging.CRITICAL)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
            raise UsageError(
                f"127.0.0.1:{port} cannot be listened on: {why}",
                hint="leave --port out: any free one is taken",
            ) from error
        gate = Gate(port=listener.getsockname()[1])
        asyncio.run(_serve(listener, TopServer(command, gate, title), say))
    return 0


async def _serve(listener: socket.socket, server: TopServer, say: Callable[[str], None]) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    runner = web.AppRunner(server.make(), access_log=None, shutdown_timeout=_LEAVING_S)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        say(server.gate.url)
        await over.wait()
    finally:
        await runner.cleanup()
