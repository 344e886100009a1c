"""The options of a group, and the words of what they find."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from distdbg.check.arrays import differing_ranks, explain_arrays
from distdbg.check.options import BUFFERS, NONFINITE, ORDER, Options, read_options
from distdbg.check.suspicion import explain_suspicion
from distdbg.errors import BufferChangedError, ConfigError, DivergedError, NonFiniteError


def words(site: str) -> bytes:
    return json.dumps({"facts": {}, "call_site": site}).encode()


def found(fault: str, troubles: list[Any], sites: list[str]) -> Any:
    return SimpleNamespace(
        fault=fault,
        troubles=troubles,
        descriptions=[words(site) if site else b"" for site in sites],
    )


def explain(error: Any, names: list[int], seq: int = 7) -> Any:
    op = "all_reduce #7 on group 'dp'"
    return explain_arrays(
        error,
        op,
        global_ranks=names,
        started_at="b.py:9 (g)",
        kind="all_reduce",
        seq=seq,
        group="dp",
    )


def test_options_are_read_from_the_environment() -> None:
    assert read_options({}) == Options(0, 0)
    environ = {
        "DISTDBG_CHECK_NONFINITE": "1",
        "DISTDBG_CHECK_BUFFERS": "yes",
        "DISTDBG_CHECK_ORDER": "on",
        "DISTDBG_CHECKSUM_EVERY": "50",
    }
    assert read_options(environ) == Options(NONFINITE | BUFFERS | ORDER, 50)
    with pytest.raises(ConfigError, match="DISTDBG_CHECKSUM_EVERY='-1'"):
        read_options({"DISTDBG_CHECKSUM_EVERY": "-1"})


def test_a_nonfinite_input_is_told_with_rank_amount_place_and_line() -> None:
    troubles = [(0, 0, 0, 0, 0, 8, 0), (5, 1, 3, 2, 4, 8, 0)]
    error = explain(found("nonfinite", troubles, ["/x/a.py:1 (f)", "/x/a.py:2 (f)"]), [4, 6])
    assert isinstance(error, NonFiniteError)
    assert error.ranks == [6]
    assert (error.kind, error.seq, error.group) == ("all_reduce", 7, "dp")
    assert str(error) == (
        "all_reduce #7 on group 'dp' was given NaN or Inf by rank 6: 3 of 8 elements\n"
        "  rank 6: 3 of 8 elements, the first, NaN, at index 6 (index 2 of block 1); "
        "called at a.py:2 (f)\n"
        "  nothing was written; the group is still usable\n"
        "  hint: see what rank 6 computed before that line"
    )


def test_many_nonfinite_ranks_are_cut_short() -> None:
    troubles = [(1, 0, 1, 0, 0, 8, 0)] * 100
    error = explain(found("nonfinite", troubles, ["a.py:1 (f)"] * 100), list(range(100)))
    assert error.what == (
        "all_reduce #7 on group 'dp' was given NaN or Inf by ranks 0-99: 100 elements"
    )
    assert len(error.details) == 10
    assert error.details[8] == "and 92 more"


def test_a_changed_buffer_is_told_by_who_knows_of_it() -> None:
    at_start = explain(found("changed", [(0,) * 7, (2,) + (0,) * 6], ["a:1", "a:2"]), [0, 1])
    assert isinstance(at_start, BufferChangedError)
    assert at_start.ranks == [1]
    assert at_start.details == [
        "rank 1 started it at a:2",
        "nothing was written; the group is still usable",
    ]
    at_end = explain(found("changed", [(0,) * 7, (2,) + (0,) * 6], ["", "a:2"]), [0, 1])
    assert at_end.details[1] == ("it was found after the op: the outputs of all ranks may be wrong")
    message = explain(found("changed", [(2,) + (0,) * 6, (0,) * 7], ["", ""]), [0, 1], seq=-1)
    assert message.details[0] == "rank 0 started it at b.py:9 (g)"
    assert message.details[1].startswith("the receiver may have got")


def test_diverged_outputs_name_the_minority() -> None:
    troubles = [(0, 0, 0, 0, 0, 8, checksum) for checksum in (7, 7, 9)]
    error = explain(found("diverged", troubles, ["a:1"] * 3), [0, 2, 4])
    assert isinstance(error, DivergedError)
    assert error.ranks == [4]
    assert error.what == (
        "all_reduce #7 on group 'dp' left results on rank 4 that differ from those of the other ranks"
    )
    pair = explain(found("diverged", troubles[1:], ["a:1"] * 2), [0, 1])
    assert pair.ranks == [0, 1]
    assert pair.what == "all_reduce #7 on group 'dp' left different results on ranks 0-1"


@pytest.mark.parametrize(
    ("marks", "odd"),
    [("aab", [2]), ("ab", [0, 1]), ("abc", [0, 1, 2]), ("aabb", [0, 1, 2, 3]), ("baaac", [0, 4])],
)
def test_the_odd_ranks_are_those_outside_the_majority(marks: str, odd: list[int]) -> None:
    assert differing_ranks(marks, range(len(marks))) == odd


def test_a_suspicion_shows_both_lines_and_the_odd_rank() -> None:
    facts = ("crossed", 12, 11, [1, 2, 2], [False] * 3, [words("a:1"), words("a:2"), words("a:2")])
    suspicion = explain_suspicion(facts, group="dp", global_ranks=[0, 1, 2])
    assert suspicion.ranks == [0]
    assert suspicion.sites == {0: "a:1", 1: "a:2", 2: "a:2"}
    assert suspicion.text.splitlines() == [
        "op #12 and op #11 on group 'dp' look swapped between ranks: each was called at the other's line",
        "  rank 0 called it at a:1",
        "  ranks 1-2 called it at a:2",
        "  the calls are equal, so both ops were carried out",
    ]


def test_a_suspicion_survives_words_that_never_came() -> None:
    facts = ("layouts", 12, 0, [1, 1], [False, True], [b"", b"\xff"])
    suspicion = explain_suspicion(facts, group="dp", global_ranks=[0, 1])
    assert suspicion.ranks == [0, 1]
    assert "rank 1: not contiguous, at an unknown line" in suspicion.text
