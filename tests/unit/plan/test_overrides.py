"""What DISTDBG_ALGO may say."""

from __future__ import annotations

import pytest

from distdbg.errors import ConfigError
from distdbg.ops.call import Kind
from distdbg.runtime.plan.layout import HostLayout, make_hosts
from distdbg.runtime.plan.overrides import (
    Override,
    choose_override,
    parse_overrides,
    parse_size,
)


def test_rules_name_a_kind_a_size_and_an_algorithm() -> None:
    rules = parse_overrides("all_reduce=ring, all_reduce@64KiB=doubling,broadcast@1 MiB=binomial")
    assert rules == (
        Override(kind=Kind.ALL_REDUCE, algorithm="doubling", most_nbytes=64 << 10),
        Override(kind=Kind.BROADCAST, algorithm="binomial", most_nbytes=1 << 20),
        Override(kind=Kind.ALL_REDUCE, algorithm="ring"),
    )
    assert choose_override(rules, Kind.ALL_REDUCE, 64 << 10) == "doubling"
    assert choose_override(rules, Kind.ALL_REDUCE, 65_537) == "ring"
    assert choose_override(rules, Kind.BROADCAST, 2 << 20) is None


def test_nothing_says_nothing() -> None:
    assert parse_overrides(None) == parse_overrides("") == parse_overrides(" , ") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("all_reduce", "expected KIND[@SIZE]=ALGORITHM"),
        ("allreduce=ring", "known are all_reduce, broadcast"),
        ("all_reduce=rings", "all_reduce has slots, doubling"),
        ("all_reduce@64KB=ring", "'64KB' is no size"),
        ("all_to_all@64KiB=pairwise", "no rank knows the sizes"),
    ],
)
def test_what_is_not_known_is_named_with_what_is(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_overrides(text)
    assert "DISTDBG_ALGO" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "nbytes"), [("8", 8), ("8B", 8), ("2 KiB", 2048), ("1gib", 1 << 30)]
)
def test_sizes_have_units_of_two(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


def test_hosts_differ_by_one_rank_at_most() -> None:
    assert make_hosts(7, 3) == ((0, 1, 2), (3, 4), (5, 6))
    with pytest.raises(ValueError, match="do not fit"):
        make_hosts(2, 3)


def test_a_layout_says_where_a_rank_is() -> None:
    layout = HostLayout(((0, 3, 4), (1, 2)))
    assert [layout.host_of(rank) for rank in range(5)] == [0, 1, 1, 0, 0]
    assert [layout.place_of(rank) for rank in range(5)] == [0, 0, 1, 1, 2]
    assert (layout.lanes, layout.largest, layout.size) == (2, 3, 5)
