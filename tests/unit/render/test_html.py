"""The page as text: bounded, whole, and nothing of a program in it that a browser would obey."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
import render_examples as examples

from distdbg.diagnose.session import LogLine
from distdbg.render.html import to_html
from tests.support.session_builder import SessionBuilder

ALL = [examples.missing_rank, examples.deadlock, examples.healthy]


class Outline(HTMLParser):
    """Tags that are open, ids, and what the page would load."""

    VOID = frozenset(["meta", "path", "rect", "line", "input", "br"])

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.scripts = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.scripts += tag == "script"
        refs = [facts.get(name) for name in ("src", "href", "srcset", "action", "poster")]
        self.loads += [ref for ref in refs if ref and not ref.startswith("#")]
        assert not [name for name in facts if name.startswith("on") or name == "style"], attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def data_of(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize("example", ALL)
def test_a_page_is_well_formed_and_loads_nothing(example) -> None:
    outline = Outline(to_html(*example()))
    assert outline.open == ["html"] or outline.open == []
    assert outline.loads == []
    assert outline.scripts == 2
    assert len(set(outline.ids)) == len(outline.ids)


def test_the_policy_lets_the_page_run_its_own_script_and_load_nothing() -> None:
    page = to_html(*examples.deadlock())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    for name in ("style", "script"):
        body = re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize(
    "words", ["</script><script>alert(1)", "\"' onload=x", "<!--", "&lt;\u2028\x00", "${x} $data"]
)
def test_what_a_program_says_stays_text(words: str) -> None:
    session, verdict = examples.reported_by_a_program(words)
    session.lines.append(LogLine(text=words, source=words, rank=1))
    page = to_html(session, verdict)
    outline = Outline(page)
    assert outline.scripts == 2
    assert outline.loads == []
    assert "<script>alert" not in page
    data_of(page)


@pytest.mark.slow
def test_ops_are_bounded_and_what_is_left_out_is_said() -> None:
    build = SessionBuilder(world_size=100, now_s=2000)
    for rank in range(100):
        build.op(rank, "all_gather", is_async=True)
        for step in range(600):
            build.op(rank, "all_reduce", at_s=step + 1, ended_s=step + 1.5)
    _, verdict = examples.healthy()
    page = to_html(build.session, verdict)
    data = data_of(page)
    shown = len(data["ops"]["lane"])
    assert shown < 20_100
    assert data["total"] == 60_100
    assert f"The last {shown:,} of 60,100 ops, of {len(data['lanes'])} of 100 ranks" in page
    old = [i for i, seq in enumerate(data["ops"]["seq"]) if seq == 1]
    assert len(old) == len(data["lanes"])
    assert {data["words"]["status"][data["ops"]["status"][i]] for i in old} == {"in flight"}


def test_a_session_without_ops_is_a_page_too() -> None:
    build = SessionBuilder(world_size=2)
    _, verdict = examples.healthy()
    page = to_html(build.session, verdict)
    assert 'id="timeline"' not in page
    build.lose(0, 1)
    Outline(to_html(build.session, verdict))
