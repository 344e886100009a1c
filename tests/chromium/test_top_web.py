"""The dashboard in a browser: live numbers that change, for who has the token and for nobody else."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from browser import Browser  # noqa: TC002

from tests.support.leftovers import find_marked, new_mark

ROOT = Path(__file__).parents[2]


@pytest.fixture
def what() -> str:
    return "serve"


@pytest.fixture
def server(what: str) -> Iterator[tuple[subprocess.Popen[str], str, Callable[[], list[int]]]]:
    """The process, the address that it has printed, and who runs because of it."""
    mark = new_mark()
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("serve_made_up.py")), what],
        env={**os.environ, **mark.environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    yield process, url, lambda: sorted(find_marked(mark))
    with suppress(ProcessLookupError):
        process.kill()
    process.wait(120)
    process.stdout.close()
    poll(lambda: not find_marked(mark))


def poll(is_so: Callable[[], bool], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # another process has no event for us


def ask(url: str, **headers: str) -> tuple[int, dict[str, str], str]:
    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *words: object) -> None:  # type: ignore[override]  # never
            return None

    opener = urllib.request.build_opener(NoRedirect)
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode("utf-8", "replace")


def numbers(browser: Browser) -> list[int]:
    """Of the ops of rank 0, as they were drawn one after the other."""
    text = "".join(browser.frames)
    return [int(number) for number in re.findall(r"all_reduce #(\d+) on", text)]


@pytest.mark.slow
def test_the_ranks_are_shown_and_their_numbers_change(
    browser: Browser, server, tmp_path: Path
) -> None:
    _, url, processes = server
    browser.go(url)
    browser.until("document.body.classList.contains('-first-byte')")
    poll(lambda: bool(browser.ask("1")) and len(set(numbers(browser))) > 8)
    assert "made-up-run" in "".join(browser.frames)
    assert max(numbers(browser)) > min(numbers(browser)) + 5
    assert "token" not in browser.ask("location.href")
    assert [one for one in browser.requests if not one.startswith(url.split("?")[0])] == []
    assert [one for one in browser.complaints if not re.search("GPU|WebGL|task queue", one)] == []
    first = pixels(browser, tmp_path / "one.png")
    poll(lambda: bool(browser.ask("1")) and pixels(browser, tmp_path / "two.png") != first)
    assert len(processes()) == 2
    browser.go("about:blank")
    poll(lambda: bool(browser.ask("1")) and len(processes()) == 1)


def pixels(browser: Browser, path: Path) -> bytes:
    browser.screenshot(path, height=400)
    return path.read_bytes()


def test_nobody_comes_in_without_the_token(browser: Browser, server) -> None:
    _, url, processes = server
    base = url.partition("?")[0]
    host = base.removeprefix("http://").rstrip("/")
    for wrong in (
        base,
        f"{base}?token=wrong",
        f"{base}ws",
        f"{base}static/js/textual.js",
        f"{base}x/",
    ):
        assert ask(wrong)[0] == 403
    assert ask(url, Host="evil.example:80")[0] == 403
    assert ask(url, Origin="http://evil.example")[0] == 403
    status, headers, _ = ask(url)
    assert status == 303
    cookie = SimpleCookie(headers["Set-Cookie"])["distdbg_top"]
    assert cookie["httponly"]
    assert (cookie["samesite"], cookie["path"]) == ("Strict", headers["Location"])
    page = f"http://{host}{headers['Location']}"
    assert ask(page)[0] == 403
    assert ask(page, Cookie="distdbg_top=wrong")[0] == 403
    status, _, text = ask(page, Cookie=f"distdbg_top={cookie.value}")
    assert status == 200
    assert "data-session-websocket-url" in text
    assert url.partition("=")[2] not in text
    upgrade = {
        "Cookie": f"distdbg_top={cookie.value}", "Upgrade": "websocket", "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": base64.b64encode(b"x" * 16).decode(),
    }  # fmt: skip
    assert ask(f"{page}ws", **{**upgrade, "Origin": "http://evil.example"})[0] == 403
    assert ask(f"{page}static/", Cookie=f"distdbg_top={cookie.value}")[0] in (403, 404)
    browser.go(f"{base}?token=wrong")
    assert "open the address" in browser.ask("document.body.textContent")
    assert len(processes()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_server_that_ends(browser: Browser, server, number: int) -> None:
    process, url, processes = server
    browser.go(url)
    browser.until("document.body.classList.contains('-first-byte')")
    assert len(processes()) == 2
    process.send_signal(number)
    assert process.wait(120) == (-number if number == signal.SIGKILL else 0)
    poll(lambda: bool(browser.ask("1")) and not processes())
    browser.until("document.body.classList.contains('-closed')")
    browser.go("about:blank")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["serve-fail"])
def test_a_dashboard_that_cannot_begin_says_why(browser: Browser, server) -> None:
    _, url, processes = server
    browser.go(url)
    browser.until("document.body.classList.contains('-closed')")
    text = "".join(browser.frames)
    assert "there is no such job" in text
    assert "job\x1b[2J" not in text
    assert len(processes()) == 1


@pytest.mark.slow
def test_a_port_that_is_taken_is_said(server) -> None:
    from distdbg.errors import UsageError
    from distdbg.tui.web import serve

    port = int(server[1].split(":")[2].split("/")[0])
    with pytest.raises(
        UsageError, match=f"127.0.0.1:{port} cannot be listened on: Address already"
    ):
        serve(["true"], port=port, say=print)
