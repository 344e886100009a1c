from __future__ import annotations

import pytest

from distdbg.control.words import AbortWords
from distdbg.record.printable import shorten, shorten_middle


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ("rank 1 waits", 12, "rank 1 waits"),
        ("rank 1 sends 1024 rows to it", 20, "rank 1 sends ..."),
        ("rank 1 sends 1024 rows", 21, "rank 1 sends 1024 ..."),
        ("x" * 30, 10, "xxxxxx ..."),
        ("", 0, ""),
        ("abc", 2, "ab"),
    ],
)
def test_a_text_is_cut_between_words_and_says_so(text: str, most: int, cut: str) -> None:
    assert shorten(text, most) == cut


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ("rank 1 waits", 12, "rank 1 waits"),
        ("OSError: no room: /data/a.bin has 12 rows", 30, "OSError: no room: ... 12 rows"),
        ("x" * 90, 30, "xxxxxxxxxxxxxxx ... xxxxxxxxxx"),
        ("", 0, ""),
    ],
)
def test_both_ends_of_a_text_are_kept(text: str, most: int, cut: str) -> None:
    assert shorten_middle(text, most) == cut
    assert len(cut) <= most


@pytest.mark.parametrize("letter", ["w", "\u2502"])
def test_the_reason_of_an_abort_is_cut_so_too(letter: str) -> None:
    word = letter * 7
    what = AbortWords.from_json(AbortWords(what=f"{word} " * 200).to_json()).what
    assert what.endswith(f"{word} ...")
    assert set(what.split()) == {word, "..."}
