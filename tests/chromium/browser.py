"""A headless Chromium, asked over a pipe.

What a page asks of the network and says to the console is kept.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-zygote",
    "--remote-debugging-pipe",
    "--hide-scrollbars",
)


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab. `requests` and `complaints` are of the page that was opened last."""

    def __init__(self, program: str, folder: Path) -> None:
        there, ours = os.pipe()
        mine, theirs = os.pipe()

        def place() -> None:  # it reads descriptor 3 and writes 4
            read, write = os.dup(there), os.dup(theirs)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=place,
            pass_fds=(3, 4, there, theirs),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": str(folder)},
        )
        os.close(there)
        os.close(theirs)
        self._write, self._read = ours, mine
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.frames: list[str] = []
        """What came over a websocket."""
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(120)
        os.close(self._write)
        os.close(self._read)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(time.monotonic() + 30)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            assert left > 0, "the browser does not answer"
            if select.select([self._read], [], [], left)[0]:
                data = os.read(self._read, 1 << 20)
                assert data, "the browser is gone"
                self._buffer += data
        text, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Network.webSocketFrameReceived":
            data = params["response"]["payloadData"]
            is_text = params["response"]["opcode"] == 1
            self.frames.append(
                data if is_text else base64.b64decode(data).decode("utf-8", "replace")
            )
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))

    # ----------------------------------------------------------------------------- what tests do

    def open(
        self, path: Path, *, width: int = 1280, height: int = 900, scheme: str = "light"
    ) -> None:
        """Returns when the page is there and its script has run."""
        self.go(path.as_uri(), width=width, height=height, scheme=scheme)

    def go(self, url: str, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """The same with an address."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self.scheme(scheme)
        self.requests.clear()
        self.complaints.clear()
        self.frames.clear()
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def scheme(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def ask(self, expression: str) -> Any:
        """The value of JavaScript; a promise is waited for."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str, limit_s: float = 120.0) -> None:
        deadline = time.monotonic() + limit_s
        while not self.ask(f"!!({expression})"):
            assert time.monotonic() < deadline, f"never became true: {expression}"
            time.sleep(0.02)  # a page has no pipe to wait on

    def frame(self) -> None:
        """Wait until what was asked for is drawn."""
        self.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def mouse(self, kind: str, x: float, y: float, **params: Any) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **params)

    def click(self, x: float, y: float) -> None:
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def screenshot(self, path: Path, *, height: int | None = None) -> None:
        """The whole page, or its top."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": 0,
            "width": size["width"],
            "height": height or size["height"],
            "scale": 1,
        }
        data = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))
