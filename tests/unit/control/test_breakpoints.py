import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.control.break_fields import StopCondition
from distdbg.control.breakpoints import (
    ABOUT_ON,
    FIELDS,
    Rule,
    parse_rules,
    rules_from_page,
    rules_to_page,
)
from distdbg.control.layout import MAX_BREAK_NBYTES
from distdbg.errors import UsageError


@dataclass(frozen=True)
class Facts:
    rank: int = 0
    kind: str = "all_reduce"
    name: str = "all_reduce"
    group: tuple[str, ...] = ("dp", "3")
    seq: int = 1
    nbytes: int = 8
    dtype: str = "float32"
    peer: int | None = None
    tag: int | None = None
    comm: str = ""
    site: str = "/home/me/train.py:88 (step)"


def fits(text: str, **facts: object) -> bool:
    return Rule.parse(text).fits(Facts(**facts))  # type: ignore[arg-type]


def test_all_conditions_have_to_hold() -> None:
    rule = "rank=3,kind=all_reduce,group=dp,seq>=42"
    assert fits(rule, rank=3, seq=42)
    assert not fits(rule, rank=3, seq=41)
    assert not fits(rule, rank=2, seq=42)
    assert not fits(rule, rank=3, seq=42, kind="barrier")
    assert not fits(rule, rank=3, seq=42, group=("tp", "4"))


@pytest.mark.parametrize(
    ("rule", "fitting", "other"),
    [
        ("seq=4", 4, 5),
        ("seq!=4", 5, 4),
        ("seq<4", 3, 4),
        ("seq<=4", 4, 5),
        ("seq>4", 5, 4),
        ("seq>=4", 4, 3),
        ("seq=4|6", 6, 5),
        ("seq!=4|6", 5, 6),
        ("seq>4,seq<8", 5, 8),
    ],
)
def test_numbers_are_compared(rule: str, fitting: int, other: int) -> None:
    assert fits(rule, seq=fitting)
    assert not fits(rule, seq=other)


def test_ranks_are_lists_and_ranges() -> None:
    assert [rank for rank in range(10) if fits("rank=0-3|7", rank=rank)] == [0, 1, 2, 3, 7]
    assert [rank for rank in range(4) if fits("rank!=0|2", rank=rank)] == [1, 3]


def test_a_group_is_meant_by_its_description_or_its_name() -> None:
    assert fits("group=dp")
    assert fits("group=3")
    assert fits("group=d*")
    assert not fits("group=d")
    assert not fits("group!=dp")


def test_what_only_messages_have_fits_no_collective() -> None:
    for rule in ("peer=1", "peer!=1", "tag=0", "tag!=7", "tag<5"):
        assert not fits(rule)
    assert fits("peer=1,tag<5", kind="send", peer=1, tag=0)


@pytest.mark.parametrize(
    ("site", "does_fit"),
    [
        ("train.py:88", True),
        ("train.py", True),
        ("./train.py:88", True),
        ("me/train.py:88", True),
        ("/home/me/train.py", True),
        ("train.py:8", False),
        ("rain.py:88", False),
        ("you/train.py", False),
    ],
)
def test_a_line_is_meant_by_the_end_of_its_path(site: str, does_fit: bool) -> None:
    assert fits(f"site={site}") is does_fit


def test_sizes_may_have_units() -> None:
    assert Rule.parse("nbytes>=64K").text == "nbytes>=65536"
    assert Rule.parse("nbytes<1MiB").text == "nbytes<1048576"
    assert fits("nbytes>=1k", nbytes=1024)


def test_dtypes_are_spelled_without_their_library() -> None:
    assert fits("dtype=torch.float32")
    assert fits("dtype=float*")
    assert not fits("dtype=float16")


def test_a_rule_says_at_what_it_stops_and_how_often() -> None:
    rule = Rule.parse(" rank = 3 , on=timeout|nan, skip=2,hits=1 ")
    assert rule.on == {StopCondition.NAN, StopCondition.TIMEOUT}
    assert (rule.skip, rule.hits) == (2, 1)
    assert rule.text == "rank=3,on=nan|timeout,skip=2,hits=1"
    assert Rule.parse("rank=3").on == {StopCondition.OP}
    assert Rule.parse("on=op").text == "on=op"


def test_a_rule_knows_the_ranks_it_can_stop() -> None:
    rule = Rule.parse("rank=1-2,kind=barrier")
    assert [rank for rank in range(4) if rule.concerns(rank)] == [1, 2]
    assert Rule.parse("seq=3").concerns(7)


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("sqe>4", "'sqe' is not a field", "it is one of rank, kind, name, group, seq"),
        ("kind=allreduce", "there is no kind 'allreduce'", "all_reduce"),
        ("kind>barrier", "kind takes = or !=, not >", "kind=all_reduce|barrier"),
        ("seq=four", "seq: 'four' is not a number", ""),
        ("seq=4k", "seq: '4k' is not a number", ""),
        ("seq>", "seq> has no value", "seq>=42"),
        ("seq>=4|5", "seq>= takes one value", "seq>=42"),
        ("rank=three", "rank: 'three' is not a rank", "rank=0|4-7"),
        ("rank=-1", "rank: '-1' is not a rank", ""),
        ("rank=1,rank=2", "rank= is given twice", "'|' is or"),
        ("on=hang", "on=hang is not an event to stop at", "mismatch, nan, timeout"),
        ("on=op,on=nan", "on is given twice", ""),
        ("skip>3", "skip takes =, not >", ""),
        ("hits=0", "hits cannot be 0", ""),
        ("seq=99999999999999999999", "seq", ""),
        ("barrier", "'barrier' is not a condition", "rank=3 or seq>=42"),
        ("", "there is no condition", "on=op"),
        ("skip=3", "there is no condition", "on=op"),
        ("on=signal,kind=barrier", "a signal comes outside of ops, so kind fits none", ""),
    ],
)
def test_what_is_wrong_with_a_rule_is_said(text: str, what: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Rule.parse(text)
    assert what in caught.value.what
    assert hint in (caught.value.hint or "")
    assert "\n" not in caught.value.what
    assert len(caught.value.what) <= 120


def test_rules_are_parted_by_semicolons_and_numbered() -> None:
    rules = parse_rules("rank=3; on=nan ;")
    assert [(rule.id, rule.text) for rule in rules] == [(1, "rank=3"), (2, "on=nan")]
    assert parse_rules("") == ()


def test_rules_come_back_from_the_page_as_they_went() -> None:
    rules = parse_rules("rank=0-3|7,kind=send,peer=1,tag!=2;on=mismatch|nan,hits=3")
    assert rules_from_page(json.dumps(rules_to_page(rules)).encode()) == rules


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b'{"rules": 3}',
        b'{"rules": [3, {}, {"id": "1", "rule": 2}]}',
        b"\xff",
    ],
)
def test_a_damaged_page_has_no_rules(page: bytes) -> None:
    assert rules_from_page(page) == ()


def test_a_rule_of_another_version_does_not_hide_the_others() -> None:
    page = {"rules": [{"id": 1, "rule": "phase=moon"}, {"id": 2, "rule": "rank=1"}]}
    assert [rule.id for rule in rules_from_page(json.dumps(page).encode())] == [2]


def test_more_rules_than_the_page_holds_are_refused() -> None:
    many = [Rule.parse(f"site=a_rather_long_name_of_a_file.py:{n}", n) for n in range(100)]
    with pytest.raises(UsageError, match=f"more than {MAX_BREAK_NBYTES} bytes"):
        rules_to_page(many)
    rules_to_page(many[:40])


def test_each_example_of_the_table_is_a_rule() -> None:
    for name, field in FIELDS.items():
        rule = Rule.parse(field.example)
        assert rule.conditions[0].field == name
        assert Rule.parse(rule.text).conditions == rule.conditions
    assert set(ABOUT_ON) == set(StopCondition)


_WORDS = st.text("abcxyz0123=<>!|,;.-_ *", max_size=30)


@given(_WORDS)
def test_any_text_is_a_rule_or_a_usage_error(text: str) -> None:
    try:
        rule = Rule.parse(text)
    except UsageError:
        return
    again = Rule.parse(rule.text)
    assert again == rule
