"""The page in a browser: it draws, its controls work, and it asks the network for nothing."""

from __future__ import annotations

import struct
import time
import zlib
from pathlib import Path

import pytest
import render_examples as examples
from browser import Browser  # noqa: TC002

from distdbg.diagnose.session import LogLine
from distdbg.render.html import to_html

EVIL = "</script><img src=x onerror=alert(1)>\"'&<b>\u202e\u2028\x1b[2J</style>"


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    path = tmp_path / "page.html"
    path.write_text(to_html(*examples.missing_rank()), encoding="utf-8")
    browser.open(path)
    browser.until("document.documentElement.dataset.ready")
    browser.frame()
    return browser


def span(browser: Browser) -> int:
    browser.frame()
    return int(browser.ask("document.getElementById('timeline').dataset.span"))


def rows(browser: Browser) -> int:
    return browser.ask("document.querySelectorAll('#ops tbody tr').length")


def text(browser: Browser, selector: str) -> str:
    return browser.ask(f"document.querySelector({selector!r}).textContent")


def painted(browser: Browser) -> int:
    """How many colours the canvas has."""
    return browser.ask(
        "(() => { const c = document.getElementById('timeline'); const seen = new Set();"
        "const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "for (let i = 0; i < p.length; i += 4) seen.add(p[i] << 16 | p[i + 1] << 8 | p[i + 2]);"
        "return seen.size; })()"
    )


def test_a_page_draws_without_a_complaint_and_asks_nobody(page: Browser) -> None:
    assert painted(page) > 8
    assert text(page, "h1").startswith("rank 3 never called all_reduce #4")
    assert page.ask("document.querySelectorAll('svg.graph .node').length") == 2
    assert page.ask("document.querySelectorAll('svg.heat .cell').length") == 3
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith("file:")] == []
    assert len(page.requests) == 1


@pytest.mark.parametrize("example", [examples.deadlock, examples.healthy])
def test_other_sessions_draw_as_well(browser: Browser, tmp_path: Path, example) -> None:
    (tmp_path / "page.html").write_text(to_html(*example()), encoding="utf-8")
    browser.open(tmp_path / "page.html")
    browser.until("document.documentElement.dataset.ready")
    assert browser.complaints == []


def test_buttons_and_keys_zoom_and_move(page: Browser) -> None:
    page.ask("document.getElementById('all').click()")
    whole = span(page)
    page.ask("document.getElementById('in').click()")
    assert span(page) == pytest.approx(whole / 2, rel=0.01)
    page.ask("document.getElementById('timeline').focus()")
    page.key("+")
    assert span(page) == pytest.approx(whole / 4, rel=0.01)
    page.key("-")
    page.key("0")
    assert span(page) == whole
    page.key("f")
    assert span(page) < whole


def test_a_drag_moves_and_ctrl_with_the_wheel_zooms_at_the_pointer(page: Browser) -> None:
    page.ask("document.getElementById('timeline').scrollIntoView({block: 'center'})")
    page.ask("document.getElementById('in').click()")
    before = span(page)
    box = page.ask(
        "(() => { const b = document.getElementById('timeline').getBoundingClientRect();"
        "return [b.left, b.top, b.width, b.height]; })()"
    )
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-60, modifiers=2)
    zoomed = span(page)
    assert zoomed < before
    before_pixels = page.ask("document.getElementById('timeline').toDataURL()")
    page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    page.mouse("mouseMoved", x + 60, y, button="left", buttons=1)
    page.mouse("mouseReleased", x + 60, y, button="left", clickCount=1)
    assert span(page) == zoomed
    assert page.ask("document.getElementById('timeline').toDataURL()") != before_pixels
    assert page.complaints == []


def test_no_more_is_shown_than_there_is(page: Browser) -> None:
    # The margins of the picture were counted: '632.5 ms shown of 608.2 ms'.
    page.ask("document.getElementById('all').click()")
    page.frame()
    whole = text(page, "#range").removeprefix("all ").removesuffix(" shown")
    assert text(page, "#range") == f"all {whole} shown"
    page.ask("document.getElementById('in').click()")
    page.frame()
    assert text(page, "#range").endswith(f" shown of {whole}")


def test_an_op_under_the_pointer_is_told_and_a_click_shows_it_in_the_table(page: Browser) -> None:
    page.ask("document.getElementById('timeline').scrollIntoView({block: 'center'})")
    left, top, width = page.ask(
        "(() => { const b = document.getElementById('timeline').getBoundingClientRect();"
        "return [b.left, b.top, b.width]; })()"
    )
    x, y = left + width - 30, top + 26 + 13
    page.mouse("mouseMoved", x, y)
    assert text(page, "#tip") == (
        "rank 0: all_reduce #4 on group 'world'\nat train.py:80 (step)\n"
        "has not ended, 30 s so far\n4.0 KiB"
    )
    page.click(x, y)
    assert rows(page) == 1
    assert "in flight" in text(page, "#ops tbody tr")


def test_the_table_is_filtered_and_sorted(page: Browser) -> None:
    assert rows(page) == 15

    def filter_by(words: str) -> int:
        page.ask(
            "(() => { const f = document.getElementById('filter');"
            f"f.value = {words!r}; f.dispatchEvent(new Event('input')); }})()"
        )
        return rows(page)

    assert filter_by("rank 3") == 3
    assert filter_by("in flight") == 3
    assert filter_by("rank 1 #2") == 1
    assert filter_by("nothing like it") == 0
    assert filter_by("") == 15
    page.ask("document.querySelectorAll('#ops th button')[0].click()")
    assert text(page, "#ops tbody td") == "rank 0"
    page.ask("document.querySelectorAll('#ops th button')[0].click()")
    assert text(page, "#ops tbody td") == "rank 3"


def test_nothing_of_a_program_becomes_part_of_the_page(browser: Browser, tmp_path: Path) -> None:
    session, verdict = examples.reported_by_a_program(EVIL)
    session.lines.append(LogLine(text=EVIL, source=EVIL, rank=1))
    (tmp_path / "page.html").write_text(to_html(session, verdict), encoding="utf-8")
    browser.open(tmp_path / "page.html")
    browser.until("document.documentElement.dataset.ready")
    assert browser.ask("document.querySelectorAll('img, b[onerror], script').length") == 2
    assert "</script><img src=x" in text(browser, "h1")
    assert "</script><img src=x" in text(browser, "#ops tbody")
    assert "</script><img src=x" in text(browser, "#log")
    assert browser.complaints == []
    assert len(browser.requests) == 1


def test_a_page_without_scripts_tells_the_verdict(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(to_html(*examples.deadlock()), encoding="utf-8")
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(tmp_path / "page.html")
        words = browser.send(
            "DOM.getOuterHTML", nodeId=browser.send("DOM.getDocument")["root"]["nodeId"]
        )
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
    assert "deadlock of ranks 0,1" in words["outerHTML"]
    assert 'class="node core"' in words["outerHTML"]
    assert browser.complaints == []


@pytest.mark.slow
def test_dark_is_dark_and_light_is_light(page: Browser, tmp_path: Path) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        page.frame()
        page.screenshot(tmp_path / "shot.png", height=200)
        shades[scheme] = mean_shade((tmp_path / "shot.png").read_bytes())
    assert shades["light"] > 200
    assert shades["dark"] < 70


def test_a_narrow_window_does_not_scroll_to_the_side(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(to_html(*examples.missing_rank()), encoding="utf-8")
    browser.open(tmp_path / "page.html", width=420)
    browser.until("document.documentElement.dataset.ready")
    assert browser.ask("document.documentElement.scrollWidth") <= 420


@pytest.mark.slow
def test_thousands_of_ranks_open_in_seconds(browser: Browser, tmp_path: Path) -> None:
    text_ = to_html(*examples.missing_rank(4096, 77))
    assert len(text_) < 2 << 20
    (tmp_path / "page.html").write_text(text_, encoding="utf-8")
    began = time.monotonic()
    browser.open(tmp_path / "page.html")
    browser.until("document.documentElement.dataset.ready")
    # Half a second on a quiet machine; one that took so long here would have done more than its work.
    assert time.monotonic() - began < 30
    assert painted(browser) > 8
    assert browser.complaints == []


def mean_shade(png: bytes) -> float:
    """Of an RGB(A) image: the mean of the bytes of its pixels, without alpha."""
    at, data, width, channels = 8, b"", 0, 3
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, channels = struct.unpack(">I", body[:4])[0], {2: 3, 6: 4}[body[9]]
        elif kind == b"IDAT":
            data += body
        at += length + 12
    raw = zlib.decompress(data)
    stride = width * channels + 1
    line, total, count = bytearray(stride - 1), 0, 0
    for row in range(0, len(raw), stride):
        line = unfilter(raw[row], raw[row + 1 : row + stride], line, channels)
        for channel in range(3):
            total += sum(line[channel::channels])
        count += 3 * width
    return total / count


def unfilter(kind: int, data: bytes, above: bytearray, step: int) -> bytearray:
    line = bytearray(data)
    for i in range(len(line)):
        left, up = line[i - step] if i >= step else 0, above[i]
        corner = above[i - step] if i >= step else 0
        guess = left + up - corner
        near = min((left, up, corner), key=lambda value: abs(guess - value))
        line[i] = (line[i] + (0, left, up, (left + up) // 2, near)[kind]) & 255
    return line
