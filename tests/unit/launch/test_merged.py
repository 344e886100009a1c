"""Lines of many ranks to one sequence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distdbg.launch.output_streams import StdStreams
from distdbg.launch.outputs.merged import Folded, Merger, OutputLine

SECOND = 10**9


def merge(*texts: str | list[tuple[int, str]], window_ns: int = SECOND) -> list[Folded]:
    """By rank: words, a millisecond apart, or pairs of time in ms and text."""
    merger = Merger(len(texts), window_ns=window_ns)
    for rank, text in enumerate(texts):
        pairs = list(enumerate(text.split())) if isinstance(text, str) else text
        for ms, word in pairs:
            merger.put(rank, OutputLine(ms * 10**6, rank, StdStreams.OUT, word))
    found = []
    while (folded := merger.take()) is not None:
        found.append(folded)
    return found


def shown(lines: list[Folded]) -> list[str]:
    return [f"{','.join(map(str, line.ranks))} {line.text}" for line in lines]


def test_equal_lines_are_one_with_their_ranks() -> None:
    assert shown(merge("a b", "a b", "a b")) == ["0,1,2 a", "0,1,2 b"]


def test_what_one_rank_has_more_goes_before_what_all_have() -> None:
    assert shown(merge("a b", "x a b")) == ["1 x", "0,1 a", "0,1 b"]
    assert shown(merge("a b c", "a x y b c", "a b c")) == [
        "0,1,2 a",
        "1 x",
        "1 y",
        "0,1,2 b",
        "0,1,2 c",
    ]


def test_lines_go_by_time() -> None:
    assert shown(merge([(5, "late")], [(1, "early"), (9, "end")])) == ["1 early", "0 late", "1 end"]


def test_equal_lines_far_apart_are_two() -> None:
    assert shown(merge([(0, "a")], [(5000, "a")])) == ["0 a", "1 a"]


def test_without_folding_each_line_is_by_itself() -> None:
    assert shown(merge("a b", "a b", window_ns=0)) == ["0 a", "1 a", "0 b", "1 b"]


def test_the_same_lines_in_other_orders_end_all_the_same() -> None:
    lines = shown(merge("a b", "b a"))
    assert sorted(lines) in (["0 a", "0,1 b", "1 a"], ["0 b", "0,1 a", "1 b"])


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=8), min_size=1, max_size=5))
def test_every_rank_reads_its_own_lines_in_order(ranks: list[list[str]]) -> None:
    found = merge(*[" ".join(words) for words in ranks])
    for rank, words in enumerate(ranks):
        assert [line.text for line in found if rank in line.ranks] == words
