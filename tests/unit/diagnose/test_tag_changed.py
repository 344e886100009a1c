"""Two tags that differ: the side that used the other's tag at its line until now is the cause."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from distdbg.diagnose.finding import Finding, FindingKind
from distdbg.diagnose.verdict import diagnose
from distdbg.render.source_hint import with_source_hint
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder


def exchange(
    sent: Sequence[int], received: Sequence[int], last: tuple[int, int], folder: str = "/job"
) -> tuple[SessionBuilder, Finding]:
    """Rank 1 sends to rank 0 with each tag, and rank 0 receives; then the last ones, which do not meet."""
    build = SessionBuilder(2)
    send, recv = f"{folder}/halo.py:4 (give)", f"{folder}/halo.py:8 (take)"
    for at, (mine, theirs) in enumerate(zip(sent, received, strict=True)):
        build.op(1, "send", peer=0, tag=mine, at_s=at, ended_s=at + 0.2, site=send)
        build.op(0, "recv", peer=1, source=1, tag=theirs, at_s=at, ended_s=at + 0.2, site=recv)
    build.op(1, "send", peer=0, tag=last[0], at_s=50, site=send)
    build.op(0, "recv", peer=1, tag=last[1], at_s=50, site=recv)
    root = diagnose(build.session).root
    assert root is not None
    assert root.kind is FindingKind.DEADLOCK
    return build, root


ROUNDS = [0, 1] * 3


def test_a_receiver_that_asks_for_a_new_tag_is_the_cause() -> None:
    _, root = exchange(ROUNDS, ROUNDS, (1, 2))
    assert (root.ranks, root.victims) == ((0,), (1,))
    assert root.what == (
        "ranks 0-1 are deadlocked: rank 0 waits for tag 2 (tag 1 before) at halo.py:8; rank 1 sent tag 1 "
        "at halo.py:4"
    )
    assert any(
        fact.text.endswith("; rank 0 used tag 1 there 3 times before, and tag 2 never")
        for fact in root.evidence
    )
    assert root.advice == (
        "see what the tag at halo.py:8 is made from: on rank 0 it was 1 before, and is 2 now"
    )


def test_a_sender_that_gives_a_new_tag_is_the_cause() -> None:
    _, root = exchange(ROUNDS, ROUNDS, (2, 0))
    assert root.ranks == (1,)
    assert "rank 1 sends tag 2 (tag 0 before) at halo.py:4; rank 0 waits for tag 0" in root.what


@pytest.mark.parametrize(
    ("sent", "received", "last"),
    [
        pytest.param([], [], (1, 2), id="no past"),
        pytest.param(ROUNDS, ROUNDS, (3, 2), id="both changed"),
        pytest.param(ROUNDS, ROUNDS, (1, 0), id="neither tag is new"),
        pytest.param([*range(6)], [*range(6)], (6, 7), id="tags that count rounds"),
        pytest.param([*range(6)], [*range(6)], (5, 6), id="a round ahead"),
        pytest.param([1], [1], (1, 2), id="used once"),
    ],
)
def test_without_a_side_that_did_as_always_either_may_be_wrong(
    sent: list[int], received: list[int], last: tuple[int, int]
) -> None:
    _, root = exchange(sent, received, last)
    assert root.ranks == (0, 1)
    assert "before" not in root.what
    assert root.advice.startswith("send and receive in the same order with the same tags")


PROGRAM = """\
class Domain:
    def tag(self, name):
        return sorted(self.fields).index(name)
    # 4
    def take(self, name):
{binds}

        recv(f, 1, {argument})
"""


@pytest.mark.parametrize(
    ("binds", "argument", "found"),
    [
        (
            "        f, tag = self.fields[name], self.tag(name)",
            "tag=tag",
            "; it comes from `f, tag = self.fields[name], self.tag(name)` (line 6 of halo.py), "
            "`return sorted(self.fields).index(name)` (line 3)",
        ),
        (
            "        f = self.fields[name]",
            "None, self.tag(name)",
            "; it comes from `recv(f, 1, None, self.tag(name))` (line 8 of halo.py), "
            "`return sorted(self.fields).index(name)` (line 3)",
        ),
        (
            "        tag = len(self.fields)",
            "tag=tag",
            "; it comes from `tag = len(self.fields)` (line 6 of halo.py)",
        ),
        ("        tag = 1; pass", "tag=2", ""),
        ("        f = self.fields[name]", "tag=tag", ""),
    ],
)
def test_the_source_says_what_the_tag_is_made_from(
    tmp_path: Path, binds: str, argument: str, found: str
) -> None:
    (tmp_path / "halo.py").write_text(PROGRAM.format(binds=binds, argument=argument))
    build, root = exchange(ROUNDS, ROUNDS, (1, 2), str(tmp_path))
    source = SourceLines(str(tmp_path), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source).root
    assert reported is not None
    assert reported.advice == root.advice + found
