"""How findings name ranks, places and times; which forms go together."""

import pytest

from distdbg.diagnose.legality import SplitMismatch, facts_of, split_pairs
from distdbg.diagnose.shifted_calls import CallShift, find_slip
from distdbg.diagnose.wording import fit, say_ranks, say_s, say_site, short_site, verb
from distdbg.record.forms import Form, Listing
from distdbg.record.recorded_frame import RecordedFrame


def test_ranks_are_named_as_people_do() -> None:
    assert say_ranks([]) == "no rank"
    assert say_ranks([3, 3]) == "rank 3"
    assert say_ranks([5, 0, 1, 2]) == "ranks 0-2,5"
    assert (verb([1], "waits", "wait"), verb([1, 2], "waits", "wait")) == ("waits", "wait")


def test_places_lose_their_folders() -> None:
    assert say_site(None) == ""
    assert say_site(RecordedFrame("/home/me/train.py", 8, "step")) == "train.py:8 (step)"
    assert say_site(RecordedFrame("C:\\me\\train.py", 8, "step")) == "train.py:8 (step)"
    assert say_site(RecordedFrame("D:/me\\udc.py", 8, "step")) == "udc.py:8 (step)"
    assert say_site(RecordedFrame("", 8, "step")) == "?:8 (step)"
    assert short_site("/home/me/train.py:8 (Model.step)") == "train.py:8 (Model.step)"
    assert short_site("") == ""


def test_a_name_whose_bytes_are_escaped_stays_whole() -> None:
    frame = RecordedFrame("/home/d\\udcc3\\udca9/\\udcd1\\udc84.py", 3, "<module>")
    assert say_site(frame) == "\\udcd1\\udc84.py:3 (<module>)"
    assert short_site("/home/d\\udcc3\\udca9/\\udcd1\\udc84.py:3") == "\\udcd1\\udc84.py:3"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (-5, "0 ns"),
        (2_000_000, "2 ms"),
        (20_000_000, "20 ms"),
        (12 * 10**9, "12 s"),
        (1200 * 10**9, "20 min"),
        (9000 * 10**9, "2 h 30 min"),
    ],
)
def test_lengths_of_time_have_their_unit(ns: int, text: str) -> None:
    assert say_s(ns) == text


def test_a_first_line_takes_what_fits_and_is_cut_as_a_last_resort() -> None:
    assert fit("a", "b" * 200, "c") == "ac"
    assert fit("a" * 130) == "a" * 116 + " ..."


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (
            "ranks 0-1 disagree about all_to_all #3 on group 'world': rank 0 expects 4 rows from rank 1, "
            "which sends 1 rows to it in three parts of a kind, one of them empty",
            "ranks 0-1 disagree about all_to_all #3 on group 'world': rank 0 expects 4 rows from rank 1 ...",
        ),
        ("a word " * 30, "a word " * 16 + "a ..."),
        ("short; " + "word " * 40, "short; " + "word " * 21 + "word ..."),
    ],
)
def test_a_line_that_is_too_long_ends_with_a_clause_or_a_word(line: str, kept: str) -> None:
    assert fit(line) == kept
    assert len(kept) <= 120


def shapes(*each: tuple[int, ...]) -> Listing[tuple[int, ...]]:
    return Listing(each, len(each))


def test_sizes_that_were_cut_or_make_no_sense_are_not_known() -> None:
    cut = Listing(((4,),), 99, "abc")
    assert facts_of("all_reduce", Form(inputs=cut)) == {"kind": "all_reduce"}
    assert facts_of("broadcast", Form(outputs=shapes((4, 2)))) == {
        "kind": "broadcast",
        "elements": 8,
    }
    assert facts_of("an op", Form(kind="", dtype="float32")) == {"dtype": "float32"}
    odd = [
        Form(inputs=cut),
        Form(inputs=shapes((1,), (2,), (3,))),
        Form(inputs=shapes((5,))),
        Form(inputs=shapes((4,)), input_splits=Listing((1, 2), 2)),
        Form(),
    ]
    whole = Form(outputs=shapes((4,)))
    for form in odd:
        assert split_pairs({0: form, 1: whole}, (0, 1)) == []


def test_pairs_that_do_not_agree_are_counted_up_to_a_bound() -> None:
    forms = {rank: Form(inputs=shapes((4,)), outputs=shapes((8,))) for rank in (0, 1)}
    assert split_pairs(forms, (0, 1))[:2] == [SplitMismatch(0, 0, 2, 4), SplitMismatch(0, 1, 2, 4)]
    assert len(split_pairs(forms, (0, 1), most=3)) == 3


def slip_of(odd: str, others: str, first: int) -> CallShift | None:
    def compare(theirs: int, other: int) -> tuple[bool, bool] | None:
        if theirs >= len(odd) or other >= len(others):
            return None
        return odd[theirs] == others[other], False

    return find_slip(compare, first)


def test_a_slip_needs_several_calls_that_fit() -> None:
    assert slip_of("abdef", "abcdef", 2) == CallShift(1, 3)
    assert slip_of("abd", "abcd", 2) is None
    assert slip_of("abxycde", "abcde", 2) == CallShift(-2, 3)
    assert slip_of("abfgh", "abcdefgh", 2) == CallShift(3, 3)


def test_of_two_ways_to_explain_a_slip_the_longer_and_nearer_is_taken() -> None:
    assert slip_of("abcbcbcb", "acbcbcbcb", 1) == CallShift(1, 7)
